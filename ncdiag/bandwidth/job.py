"""A group of ranks, what they are to measure, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

JOINING_S = 60.0
"""How long ranks may say nothing before the first of them has measured something: connections are made one by one."""


class Node(Protocol):
    """What has a name."""

    node: str


class Crew(Protocol):
    """Where ranks run: `Session`."""

    @property
    def agents(self) -> Sequence[Node]: ...


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    agent: int
    """Index in `Session.agents`."""
    device: int

    def on(self, session: Crew) -> str:
        return session.agents[self.agent].node


@dataclass
class RankOutcome:
    """What one rank said."""

    place: Place
    rows: list[dict[str, Any]] = field(default_factory=list)
    self_test: dict[str, Any] | None = None
    counters: dict[str, int] | None = None
    """What the RDMA error counters of its node rose by; None when it did not get to its end."""
    error: str = ""
    stage: str = "starting"
    late: bool = False
    """It had to be ended when the time was up."""
    ended: bool = False
    log: bytes = b""
    topology: str = ""


@dataclass
class Job:
    """One group of ranks and what they measure."""

    places: list[Place]
    settings: dict[str, Any]
    """`ops`, `sizes`, `dtype`, `backend`, `warmup`, `precision`, `budget_s`, `check`, `self`."""
    env: dict[str, str | None] = field(default_factory=dict)
    limit_s: float = 300.0
    topology: bool = False
    """Also fetch NCCL's topology dump of every node."""


@dataclass
class Outcome:
    job: Job
    ranks: list[RankOutcome]
    took_s: float = 0.0
    moved_s: float = 0.0
    """When after its begin a rank last got further."""
    gap_s: float = 0.0
    """The longest time that no rank got further, and then one did."""
    cut: bool = False
    """No rank got further for so long that it was ended before its time."""
    began: float = field(default_factory=time.monotonic)

    def step(self) -> None:
        """A rank has got further."""
        now = time.monotonic() - self.began
        self.gap_s, self.moved_s = max(self.gap_s, now - self.moved_s), now

    @property
    def quiet_s(self) -> float:
        """How long no rank had got further when it was over."""
        return max(self.took_s - self.moved_s, 0.0)

    @property
    def patience_s(self) -> float:
        """How long no rank may get further before the run is thought to be stuck: a size takes its time, and a larger one more."""
        if not any(rank.rows for rank in self.ranks):
            return JOINING_S
        return max(8 * float(self.job.settings.get("budget_s", 2.0)) + 10, 4 * self.gap_s)

    @property
    def moving(self) -> bool:
        """Whether a run that was ended may be slow, or had too little time, rather than stuck."""
        return not self.cut and self.quiet_s < self.patience_s

    @property
    def ok(self) -> bool:
        return all(rank.counters is not None for rank in self.ranks)
