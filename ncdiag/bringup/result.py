"""What a watch is of, whom it tells, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ncdiag.bringup.ready import Check
from ncdiag.bringup.stall import Picture
from ncdiag.bringup.summary import Summary
from ncdiag.bringup.timeline import Timeline
from ncdiag.hang.content import DumpContent
from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Verdict
from ncdiag.model import Cause


class Process(Protocol):
    """What is watched: a started command or an attached process."""

    exit: int | None

    @property
    def over(self) -> bool:
        """Whether it has ended with all that belongs to it."""
        ...


class LogsOnly:
    """Nothing that can be looked at: the start is known by its logs."""

    exit: int | None = None
    over = False


class Voice(Protocol):
    """Who tells people and programs."""

    def show(self, at_s: float, picture: Picture, timeline: Timeline, errors: Sequence[str]) -> None: ...
    def stalled(
        self, at_s: float, quiet_s: float, verdict: Verdict, content: DumpContent, halted: Sequence[View]
    ) -> None: ...
    def rests(self, at_s: float, quiet_s: float, why: str) -> None: ...
    def computes(self, at_s: float, picture: Picture) -> None: ...
    def moves_again(self, at_s: float, after_s: float) -> None: ...


@dataclass
class Result:
    """How a watch ended."""

    outcome: str
    """`ready`, `finished` (a job, or what had been up, ended well), `ended` (the command ended well, but nothing came up; or it was attached to, and
    nothing tells how it ended), `failed`, `stalled`, `timeout`, `interrupted`."""
    took_s: float
    timeline: Timeline
    check: Check | None = None
    summary: Summary | None = None
    causes: list[Cause] = field(default_factory=list)
    verdict: Verdict | None = None
    """The last one that was said."""
    stalls: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """Nodes that could not be looked at."""
    started_at: float = 0.0
    """Seconds since 1970."""
    status: int | None = None
    """Exit status of what was watched; None while it runs, or where only its parent knows."""
