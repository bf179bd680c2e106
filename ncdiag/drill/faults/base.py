"""The faults of a start, each with what has to be found: cause, node or rank, stage. `bench` runs them on real engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..bench import Bench
from ..outcome import Run

HIGH = "tcp dport 32768-60999 tcp flags & (syn|ack) == syn drop"
"""New connections to high ports: gloo's mesh and the message queues, not the store."""
WORKER = r"\(Worker(?:_TP\d)? pid=(\d+)\)[^\n]*"
LOADING = WORKER + "Starting to load model"
HEALTHY, SLOW = "healthy", "slow"
RENDEZVOUS, MESH = ("rendezvous",), ("mesh", "groups")


@dataclass(frozen=True)
class Fault:
    """One way to break a start."""

    name: str
    shape: str
    what: str
    """What is broken, for the table."""
    break_it: Callable[[Bench], None]
    causes: tuple[str, ...]
    """The causes that are right; `healthy` or `slow`: it must come up without a finding."""
    node: str | None = None
    rank: int | None = None
    """Where it is, where that can be known; one of them must be said, and none may be said wrong."""
    stages: tuple[str, ...] = ()
    """The stages that are right; empty where a start that ended has none."""
    quick: bool = False
    """Whether it is short enough for every run of the tests."""
    probe: str = ""
    """The probe that has to find it before the start, which comes up; empty: the start is what is judged."""

    def said(self, run: Run) -> dict[str, Any]:
        """The answer that is judged: a cause, or a finding of the preflight; empty where there is none."""
        return run.finding(self.probe) if self.probe else run.cause

    def judge(self, run: Run) -> list[str]:
        """What is wrong with the answer; empty when it is right."""
        if self.causes[0] in (HEALTHY, SLOW):
            return _calm(run)
        found, wrong = self.said(run), []
        if found.get("cause") not in self.causes:
            wrong.append(f"cause {found.get('cause')} ({found.get('confidence')}), not {' or '.join(self.causes)}")
        where = found.get("where", {})
        expected = {key: value for key, value in (("node", self.node), ("rank", self.rank)) if value is not None}
        named = {key for key, value in expected.items() if where.get(key) == value}
        if expected and (not named or any(where.get(key) not in (None, value) for key, value in expected.items())):
            wrong.append(f"where {where}, not {expected}")
        if self.stages and run.stage not in self.stages:
            wrong.append(f"stage {run.stage or '–'}, not {' or '.join(self.stages)}")
        return wrong


def _calm(run: Run) -> list[str]:
    wrong = [] if run.outcome in ("ready", "finished") else [f"it ended as {run.outcome}"]
    wrong += [f"a stall was called at {stall['at_s']} s: {stall['cause']}" for stall in run.result["stalls"]]
    wrong += [
        f"finding {cause['cause']}"
        for cause in [*run.result["causes"], *((run.result.get("summary") or {}).get("warnings") or [])]
    ]
    return wrong


FAULTS: dict[str, Fault] = {}


def fault(
    shape: str,
    what: str,
    *causes: str,
    name: str = "",
    node: str | None = None,
    rank: int | None = None,
    stages: tuple[str, ...] = (),
    quick: bool = False,
    probe: str = "",
) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Registers a function that breaks a bench, for one shape."""

    def register(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        title = f"{shape}-{name or function.__name__.replace('_', '-')}"
        FAULTS[title] = Fault(title, shape, what, function, causes, node, rank, stages, quick, probe)
        return function

    return register
