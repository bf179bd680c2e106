"""Single values of saved JSON, whatever their type turned out to be."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ncdiag import redact

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


UNITS = {
    "_gbytes_s": " GB/s",
    "_gbits_s": " Gb/s",
    "_bytes": " bytes",
    "_mib": " MiB",
    "_mhz": " MHz",
    "_ms": " ms",
    "_s": " s",
}
"""Ends of the names of figures -> the unit behind the figure."""
_FIELD = re.compile(r"[a-z]+(_[a-z]+)*")


def observed(value: Any) -> str:
    """An observed or expected value in one line and in words, secrets masked: what is None is left out.

    >>> observed({"interface": "eth0", "max_error_s": 16.0, "error": None, "up": True, "hosts": [{"line": 3}, {"line": 7}]})
    'interface: eth0, max error: 16.0 s, up: yes, hosts: (line: 3; line: 7)'
    """
    shown = _words(redact.data(value), nested=False)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


def _words(value: Any, nested: bool = True) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else "yes" if value else "no"
    if not isinstance(value, (list, tuple, dict)):
        return text(value)
    if not value:
        return "none"
    if isinstance(value, dict):
        shown = ", ".join(_field(str(key), item) for key, item in value.items() if item is not None)
        return f"({shown})" if nested else shown
    simple = not any(isinstance(item, (list, tuple, dict)) for item in value)
    shown = (", " if simple else "; ").join(_words(item, nested=False) for item in value)
    return f"({shown})" if nested and (len(value) > 1 or not simple) else shown


def _field(name: str, value: Any) -> str:
    if not _FIELD.fullmatch(name):
        return f"{name}: {_words(value)}"
    end = next((end for end in UNITS if name.endswith(end)), "")
    words = name[: len(name) - len(end)].replace("_", " ")
    return f"{words}: {_words(value)}{UNITS.get(end, '')}"


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
