"""A run that is kept, and a later one compared with it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ncdiag.bandwidth.sweep import Row

KIND = "bandwidth-baseline"
TOLERANCE = 0.05
"""Less than this is no change, however narrow the confidence intervals are."""


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
    """A saved baseline, or the JSON that `ncdiag bandwidth --format json` wrote. Raises BaselineError."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise BaselineError(f"cannot read {path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BaselineError(f"{path} is no JSON ({error})") from error
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list) or data.get("schema") != 1:
        raise BaselineError(f"{path} is no baseline; save one with: ncdiag bandwidth --save-baseline {path}")
    return data


def compare(baseline: dict[str, Any], rows: Sequence[Row], about: dict[str, Any]) -> tuple[list[Change], list[str]]:
    """The changes, and why the runs may not be comparable."""
    doubts = [
        f"{key}: {baseline.get(key)} then, {about[key]} now"
        for key in ("ranks", "backend", "dtype")
        if baseline.get(key) != about[key]
    ]
    try:
        before = {(row["op"], row["size_bytes"], row["in_place"]): row for row in baseline["rows"]}
        return [
            change
            for row in rows
            if (old := before.get((row.op, row.size_bytes, row.in_place))) and (change := _change(old, row))
        ], doubts
    except (KeyError, TypeError) as error:
        raise BaselineError(f"damaged baseline: {error!r}") from error


def _change(old: dict[str, Any], row: Row) -> Change | None:
    before, now = float(old["busbw_gbytes_s"]), row.busbw
    if before <= 0 or now <= 0:
        return None
    width = row.busbw * row.half_width_s / row.time_s if row.half_width_s is not None and row.time_s else 0.0
    doubt = float(old.get("busbw_half_width_gbytes_s") or 0.0) + width
    significant = abs(now - before) > max(TOLERANCE * before, doubt)
    return Change(row.op, row.size_bytes, row.in_place, before, now, significant)
