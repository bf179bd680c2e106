"""Folded stacks: equal ones once, the odd ones first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncdiag.report.result import Result

FOLDS = 200
NAMES = 12
"""Names that stand in the summary line of a stack."""


def view(result: Result) -> Mapping[str, Any]:
    """`folds`: who, how many, frames with the innermost first."""
    folds = sorted(result.folds, key=lambda fold: not fold.odd)
    return {
        "folds": [
            {
                "names": ", ".join(fold.ranks[:NAMES]),
                "rest": fold.ranks[NAMES:],
                "odd": fold.odd,
                "frames": [frame.rpartition(" (") if frame.endswith(")") else (frame, "", "") for frame in fold.frames],
            }
            for fold in folds[:FOLDS]
        ],
        "more": max(0, len(folds) - FOLDS),
    }
