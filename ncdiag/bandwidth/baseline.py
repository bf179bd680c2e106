"""A run that is kept, and a later one compared with it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ncdiag.bandwidth.sweep import LARGE_BYTES, Row

KIND = "bandwidth-baseline"
TOLERANCE, SMALL_TOLERANCE = 0.05, 0.2
"""Less than this is no change, however narrow the confidence intervals are; the second below LARGE_BYTES, where it is a latency that differs
from run to run."""


class BaselineError(ValueError):
    """One sentence with the file and what is wrong."""


@dataclass(frozen=True)
class Change:
    """One operation and size in both runs."""

    op: str
    size_bytes: int
    in_place: bool
    before_gbytes_s: float
    now_gbytes_s: float
    significant: bool
    """Beyond the tolerance and both confidence intervals."""

    @property
    def ratio(self) -> float:
        return self.now_gbytes_s / self.before_gbytes_s


def save(path: str, rows: Sequence[Row], about: dict[str, Any]) -> None:
    """`about`: what both runs must have alike (`nodes`, `ranks`, `backend`, `dtype`). Mode 0600. Raises BaselineError."""
    data = {"schema": 1, "kind": KIND, **about, "rows": [row.as_dict() for row in rows]}
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    except OSError as error:
        raise BaselineError(f"cannot write {path}: {error.strerror}") from error


def load(path: str) -> dict[str, Any]:
    """A saved baseline, or the JSON that `ncdiag bandwidth --format json` wrote. Raises BaselineError, also for damaged rows."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise BaselineError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also no UTF-8, and whole numbers of thousands of digits
        raise BaselineError(f"{path} is no JSON ({error})") from error
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list) or data.get("schema") != 1:
        command = data.get("command") if isinstance(data, dict) else None
        what = f"a result of ncdiag {command}, no baseline" if isinstance(command, str) else "no baseline"
        raise BaselineError(f"{path} is {what}; save one with: ncdiag bandwidth --save-baseline FILE")
    for number, row in enumerate(data["rows"]):
        _check(f"{path}: row {number}", row)
    return data


def _check(where: str, row: Any) -> None:
    """Whether what is compared is there, and can be. Raises BaselineError."""
    if not isinstance(row, dict):
        raise BaselineError(f"{where} is {_shown(row)}, not an object; the baseline is damaged")
    good = {
        "op": lambda value: isinstance(value, str),
        "size_bytes": lambda value: isinstance(value, int) and not isinstance(value, bool) and value > 0,
        "in_place": lambda value: isinstance(value, bool),
        "time_s": lambda value: _finite(value) and value > 0,
        "busbw_gbytes_s": lambda value: _finite(value) and value > 0,
        "busbw_half_width_gbytes_s": lambda value: value is None or (_finite(value) and value >= 0),
    }
    for key, holds in good.items():
        if key not in row:
            raise BaselineError(f"{where} has no {key}; the baseline is damaged")
        if not holds(row[key]):
            raise BaselineError(f"{where}: {key} is {_shown(row[key])}; the baseline is damaged")


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)[:60]


def compare(baseline: dict[str, Any], rows: Sequence[Row], about: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """The changes, and why the runs may not be comparable. `baseline` as `load` gives it."""
    doubts = [
        f"{key}: {baseline.get(key)} then, {about[key]} now"
        for key in ("ranks", "backend", "dtype")
        if baseline.get(key) != about[key]
    ]
    before = {(row["op"], row["size_bytes"], row["in_place"]): row for row in baseline["rows"]}
    pairs = [(before.get((row.op, row.size_bytes, row.in_place)), row) for row in rows if row.busbw > 0]
    return [_change(old, row) for old, row in pairs if old is not None], doubts


def _change(old: dict[str, Any], row: Row) -> Change:
    before, now = float(old["busbw_gbytes_s"]), row.busbw
    width = row.busbw * row.half_width_s / row.time_s if row.half_width_s is not None else 0.0
    doubt = float(old["busbw_half_width_gbytes_s"] or 0.0) + width
    tolerance = TOLERANCE if row.size_bytes >= LARGE_BYTES else SMALL_TOLERANCE
    significant = abs(now - before) > max(tolerance * before, doubt)
    return Change(row.op, row.size_bytes, row.in_place, before, now, significant)
