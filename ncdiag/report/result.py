"""One result of any command, made even: what every form of report (HTML, JUnit, Prometheus, comparison) is written from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ncdiag.exits import Exit
from ncdiag.hang.verdict import Fold, Printed, RankVerdict, Verdict, Wait
from ncdiag.model import Cause, Finding
from ncdiag.report.run import Run


class Span(NamedTuple):
    """One stage of one rank."""

    stage: str
    start_s: float
    """Since the start of the launch."""
    end_s: float
    """Of the last span: when it was last seen."""


class Lane(NamedTuple):
    """The start-up of one process."""

    name: str
    """`rank 3`; the role of one that has none."""
    rank: int | None
    node: str
    role: str
    spans: tuple[Span, ...]
    ended_s: float | None = None
    """When it died; None while it lived."""


class Event(NamedTuple):
    """A moment of a start-up: a stall, ready, the end."""

    at_s: float
    what: str
    more: str


class Pair(NamedTuple):
    """One measurement between two nodes or GPUs."""

    one: str
    other: str
    gbytes_s: float | None
    """None: it gave no figure; `note` says why."""
    usual_gbytes_s: float | None = None
    """Of the pairs of this run."""
    note: str = ""


class Step(NamedTuple):
    """One size of a bandwidth sweep."""

    op: str
    size_bytes: int
    in_place: bool
    busbw_gbytes_s: float
    half_width_gbytes_s: float | None = None
    """Half of the 95 % confidence interval; None: not known."""
    wrong: int | None = None
    """Wrong elements; None: not checked."""
    file: str = ""
    """The result file that it was read from; empty for what was measured."""


class Fact(NamedTuple):
    """One figure, and what it was read from."""

    name: str
    value: str
    source: str


@dataclass
class Result:
    """Fields that a command does not fill stay empty."""

    command: str
    code: int = Exit.OK
    nodes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    kind: str = ""
    """The hang verdict's kind: `hang`, `failed`, `progressing`, `healthy`, `unknown`."""
    summary: str = ""
    """The hang verdict's sentence."""
    ranks: list[RankVerdict] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)
    communicators: list[Mapping[str, Any]] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    """What to collect, to be surer."""
    notes: list[str] = field(default_factory=list)
    """What could not be read, and what limits the reading."""
    machines: list[Mapping[str, Any]] = field(default_factory=list)
    """Topologies in the shape of `topology_view.as_data`, with `name` and `nodes` (those that are alike)."""
    lanes: list[Lane] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outcome: str = ""
    """How a start ended, in words."""
    facts: list[Fact] = field(default_factory=list)
    """Single figures worth seeing."""
    source: str = ""
    """The file it was read from; empty for what was found just now."""
    printed: list[Printed] = field(default_factory=list)
    """What ranks said before they stopped or failed."""
    asked: list[str] = field(default_factory=list)
    run: Run = field(default_factory=Run)

    @classmethod
    def of_verdict(cls, command: str, verdict: Verdict, notes: list[str], code: int, run: Run) -> Result:
        """What hang-dump found."""
        return cls(
            command,
            int(code),
            sorted({rank.node for rank in verdict.ranks if rank.node}),
            causes=verdict.causes,
            kind=verdict.kind,
            summary=verdict.summary,
            ranks=verdict.ranks,
            waits=verdict.waits,
            folds=verdict.folds,
            communicators=list(verdict.communicators),
            next=verdict.next,
            notes=notes,
            printed=verdict.printed,
            asked=verdict.asked,
            run=run,
        )

    @property
    def verdict(self) -> Verdict:
        """The same as the hang inference said it."""
        return Verdict(
            self.kind,
            self.summary,
            self.causes,
            self.ranks,
            self.waits,
            self.folds,
            [dict(one) for one in self.communicators],
            self.next,
            self.printed,
            self.asked,
        )
