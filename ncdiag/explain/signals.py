"""What was seen, and how much it says."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.model import Evidence


class Says(enum.IntEnum):
    """How much a signal says about its cause."""

    CASCADE = 0
    """Follows from another error; the line itself or its software says so."""
    SYMPTOM = 1
    """An error that a dozen causes share."""
    HINT = 2
    """Fits this cause, and others."""
    STRONG = 3
    """Usually this cause."""
    NAMED = 4
    """The software names the cause."""


CONFIDENCE = {Says.NAMED: "sure", Says.STRONG: "likely", Says.HINT: "possible", Says.SYMPTOM: "possible"}


@dataclass
class Signal:
    """One thing that was seen."""

    cause: str
    """Slug; "" for a symptom or a cascade."""
    says: Says
    summary: str
    evidence: list[Evidence]
    where: dict[str, Any] = field(default_factory=dict)
    condition: bool = False
    """It slows the job or may matter later, but does not end it."""
    candidates: tuple[str, ...] = ()
    """Causes that a symptom fits, most usual first."""
    order: float = 0.0
    """When or at which line it was seen; only compared."""
    remedy: str = ""
    """A more precise one than the cause's own."""
    count: int = 1
    until: float = 0.0
    """Where it was seen last, when that was more often than is kept."""
    doubted: bool = False
    """Another fact speaks against it, which changes what is sure and not what comes first."""
    kind: str = ""
    """What was seen, where other signals ask for that; "" where none does."""


def source_of(group: Sequence[Signal]) -> str:
    return group[0].evidence[0].source if group[0].evidence else ""
