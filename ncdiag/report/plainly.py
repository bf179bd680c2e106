"""Single values of saved JSON, whatever their type turned out to be."""

from __future__ import annotations

import json
import math
from typing import Any

from ncdiag import redact
from ncdiag.inwords import figure

SHOWN = 300
"""Characters of an observed or expected value that a report shows."""


def text(value: Any) -> str:
    """A string as it is; anything else as JSON has it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """An integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def observed(value: Any, unit: str = "") -> str:
    """An observed or expected value in one line and in words, secrets masked; empty for None. `unit`: of a bare number."""
    shown = "" if value is None else figure(redact.data(value), unit)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


def seconds(value: float | None) -> str:
    """`0.4 s`, `12 s`, `5 min 20 s`, `2 h 10 min`."""
    if value is None:
        return ""
    if value < 10:
        return f"{value:.1f} s"
    whole_s = round(value)
    if whole_s < 120:
        return f"{whole_s} s"
    if whole_s < 7200:
        return f"{whole_s // 60} min {whole_s % 60} s"
    return f"{whole_s // 3600} h {whole_s % 3600 // 60} min"


def brief(took_s: float) -> str:
    """Of what may take far less than a second: `1.31 ms`, `512 ms`, `131 s`."""
    if took_s < 1:
        return f"{took_s * 1e3:.3g} ms"
    return f"{took_s:.3g} s" if took_s < 999.5 else f"{took_s:.0f} s"
