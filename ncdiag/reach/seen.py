"""What a run of the agents was asked and what came back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.reach.infer import Trial


@dataclass(frozen=True)
class Member:
    """One node of a run."""

    name: str
    hostname: str
    address: str
    mtu: int
    interface: str
    offset_s: float | None = None
    rdma: Sequence[Mapping[str, Any]] = ()
    """The ports that NCCL takes there, as lanes.Lane wants them; empty where RDMA is not to be tested."""
    services: Mapping[str, int] = field(default_factory=dict)
    """Name -> TCP port on which another program listens there."""
    link: str = ""
    """What is wrong with the interface's link: `is down`, `has no carrier`; empty where nothing is known to be."""


@dataclass(frozen=True)
class Run:
    """What was asked, and what came back."""

    what: str
    """Whose interfaces these are: `NCCL`, `gloo`, `vLLM and Ray`."""
    members: Sequence[Member]
    request: Mapping[str, Any]
    reports: Mapping[int, Mapping[str, Any]]
    """Node -> what its agent returned; a node that is missing has no report."""
    silent: Mapping[int, str] = field(default_factory=dict)
    """Node -> why it has none."""
    labels: Mapping[int, str] = field(default_factory=dict)
    """Named port -> what it stands for, where that is not plain."""

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        count = len(self.members)
        return count * (count - 1) // 2


def tests(run: Run) -> Iterator[tuple[int, int, str, str, Any]]:
    """(node, partner, what, outcome, detail) of the tests whose target was listening by then."""
    for number, report in run.reports.items():
        for round_, partner, what, outcome, detail in report["tests"]:
            peer = run.reports.get(partner)
            begin = run.request["start"] + round_ * run.request["slot_s"]
            if peer is not None and peer["port"] is not None and peer["started"] < begin:
                yield number, partner, what, outcome, detail


def trials(run: Run, wanted: str) -> list[Trial]:
    """The tests of one kind."""
    return [
        Trial(number, partner, outcome, "" if detail is None else str(detail))
        for number, partner, what, outcome, detail in tests(run)
        if what == wanted
    ]
