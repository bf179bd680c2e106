"""Stuck or not, by evidence: no stage changes, nothing new is printed, and nothing moves (pure; time comes in)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.hang.scene import View, look
from ncdiag.model import RankState

SURE_LOOKS = 2
"""Looks in a row that must show a stopped or ended process before it counts without waiting for the rest."""
COMPUTES_TIMES = 5
"""How many times the time of a stall nothing but a rank's CPU may move, while others wait, before that is said. It is no stall: a long sum looks the same."""
Key = tuple[str, int]
"""(node, pid)."""


@dataclass
class Picture:
    """What one look shows."""

    views: list[View]
    moved: bool
    """Whether anything moved since the look before."""
    changed: list[View] = field(default_factory=list)
    """Processes whose stage is another one than before."""
    quiet_s: float = 0.0
    """How long nothing has moved."""
    computing: list[View] = field(default_factory=list)
    """Those of whom nothing moves but the CPU, where others wait and nobody else moves."""
    computing_s: float = 0.0
    """How long it has been so."""


def is_missed(view: View) -> bool:
    """Whether it ended and was a part of the engine; a program that one of its processes started and did not wait for is none."""
    return (
        view.verdict == "dead" and view.state.below is None and (view.state.role != "script" or view.rank is not None)
    )


def only_compute(views: Sequence[View]) -> list[View]:
    """Those that move, where nothing of any of them moves but the CPU, in code of the program, and others wait for somebody; else nobody."""
    moving = [view for view in views if view.verdict == "progressing"]
    waits = any(view.witness and view.stage != "ready" for view in views if view.rank is not None)
    return moving if waits and all(map(_only_computes, moving)) else []


def _only_computes(view: View) -> bool:
    progress = view.state.progress
    if progress is None or stages.stage(view.stage).works or activity.moves_data(progress):
        return False
    return activity.busy(progress) and progress.children_cpu_s < activity.BUSY * progress.window_s


def key(state: RankState) -> Key:
    return state.node, state.pid


class Stall:
    """Remembers when something last moved. `after_s`: how long nothing may move."""

    def __init__(self, after_s: float, now: float) -> None:
        self.after_s = after_s
        self.moved_at = self._worked_at = now
        self._stages: dict[Key, str] = {}
        self._halted: dict[Key, int] = {}
        self._next_s = after_s

    def see(self, now: float, states: Sequence[RankState], news_at: float) -> Picture:
        """Takes one look in. `news_at`: when something new was last printed."""
        views = [look(state) for state in states]
        stages = {key(view.state): "gone" if view.verdict == "dead" else view.stage for view in views}
        changed = [
            view
            for view in views
            if stages[key(view.state)] != self._stages.get(key(view.state)) and view.stage != "unknown"
        ]
        before = self.moved_at
        if changed or set(stages) != set(self._stages) or any(view.verdict == "progressing" for view in views):
            self.moved_at = now
        self.moved_at = max(self.moved_at, news_at)
        moved = self.moved_at > before
        if moved:
            self._next_s = self.after_s
        self._stages = stages
        self._count(views)
        computing = only_compute(views)
        if changed or not computing:
            self._worked_at = now
        self._worked_at = max(self._worked_at, news_at)
        return Picture(views, moved, changed, now - self.moved_at, computing, now - self._worked_at)

    def _count(self, views: Sequence[View]) -> None:
        halted = {key(view.state) for view in views if view.verdict == "stopped" or is_missed(view)}
        self._halted = {who: self._halted.get(who, 0) + 1 for who in halted}

    @property
    def halted(self) -> list[Key]:
        """Processes that are stopped or have ended, as several looks show, while others are there."""
        return [who for who, times in self._halted.items() if times >= SURE_LOOKS]

    @property
    def suspects(self) -> bool:
        """Whether the last look showed a stopped or ended process that is not sure yet."""
        return any(times < SURE_LOOKS for times in self._halted.values())

    def computes_long(self, picture: Picture) -> bool:
        """Whether a calculation without an end is a thing to look for."""
        return picture.computing_s >= COMPUTES_TIMES * self.after_s

    def due(self, now: float) -> bool:
        """Whether it is time for a full look: the first after `after_s`, later ones at doubling distances for as long as nothing moves."""
        if now - self.moved_at < self._next_s:
            return False
        self._next_s *= 2
        return True


def signature(kind: str, cause: str, where: Mapping[str, object], culprits: Sequence[str]) -> tuple[object, ...]:
    """What makes a verdict another one: said again only where this differs."""
    return kind, cause, where.get("node"), where.get("rank"), where.get("stage"), tuple(sorted(culprits))
