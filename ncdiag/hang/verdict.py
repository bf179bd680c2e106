"""The answer of the hang inference: what each rank does, who waits for whom, who holds up the others, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Dict, List, Optional

from ncdiag.model import Cause

STATES = ("progressing", "waiting", "stuck", "stopped", "dead", "missing", "unknown")
"""`waiting`: for others; `stuck`: in something of its own that does not move; `missing`: known to have never come, or
not seen here (`note` says which)."""

KINDS = ("hang", "failed", "progressing", "healthy", "unknown")
"""`hang`: somebody holds up the others; `failed`: a process died or reported an error; `progressing`: slow is not
hung; `healthy`: ready, or nothing is wrong; `unknown`: what was read does not carry an answer."""


@dataclass
class RankVerdict:
    """One row of the table rank x stage: a process that was looked at, or a rank that is known by number only."""

    node: Optional[str]
    pid: Optional[int]
    role: str
    rank: Optional[int]
    state: str
    """One of `STATES`."""
    stage: str
    """A name of `ncdiag.stages.STAGES`."""
    since_s: Optional[float] = None
    """How long it has been there, by the silence of its log; None where it has no log file."""
    waits_for: str = ""
    """In words: `rank 1 (gpu02)`, `its peers`, `a file`."""
    why: str = ""
    """The frame, process state or counter that says so."""
    note: str = ""
    rate: str = ""
    """What moves, with units: `reads 210 MB/s, CPU 87 %`."""
    left_s: Optional[float] = None
    """Time left of the stage where it can be computed."""
    culprit: bool = False
    name: str = ""
    """How it is called in sentences, `waits` and `folds`: `rank 3 (gpu02, pid 4711)`."""


@dataclass(frozen=True)
class Wait:
    """One arrow: somebody waits for somebody."""

    waiter: str
    """`RankVerdict.name` of the one that waits."""
    target: str
    """The name of the one that it waits for, or an address."""
    how: str
    """What shows it: `SYN_SENT to 192.0.2.7:29500`, `in all_reduce, rank 1 is not`."""


@dataclass
class Fold:
    """Ranks whose stacks are equal, shown once."""

    ranks: List[str]
    """Names of the ranks."""
    frames: List[str]
    """`function (file:line)`, innermost first."""
    odd: bool = False
    """Whether these are the minority."""


@dataclass
class Printed:
    """An exception that a process printed before it stopped moving."""

    name: str
    """Who: `rank 1 (gpu02, pid 4711)`, or `one of …` where several write to one file."""
    source: str
    """The log file."""
    lines: List[str]
    """What the program said of it, its innermost frame, the exception."""
    after: int = 0
    """How many lines follow in the log."""


@dataclass
class Verdict:
    """What the inference concluded. `causes` is empty when it is `progressing` or `healthy` without a finding."""

    kind: str
    """One of `KINDS`."""
    summary: str
    """One sentence for a tired person."""
    causes: List[Cause] = field(default_factory=list)
    """Best first."""
    ranks: List[RankVerdict] = field(default_factory=list)
    waits: List[Wait] = field(default_factory=list)
    folds: List[Fold] = field(default_factory=list)
    communicators: List[Dict[str, Any]] = field(default_factory=list)
    """What NCCL RAS said about each communicator: `name`, `size`, `missing`, `behind`."""
    next: List[str] = field(default_factory=list)
    """What to collect, where that would tell more."""
    printed: List[Printed] = field(default_factory=list)
    """Exceptions that its processes printed last, those of the culprits first; empty where nothing is wrong."""
    asked: List[str] = field(default_factory=list)
    """What is to be known of the pids that were asked for: that one is a zombie."""

    @property
    def culprits(self) -> List[RankVerdict]:
        """The ranks that hold up the others; empty where nobody can be named."""
        return [rank for rank in self.ranks if rank.culprit]

    @property
    def cause(self) -> Optional[Cause]:
        """The first cause, None where there is none."""
        return self.causes[0] if self.causes else None

    def as_dict(self) -> Dict[str, Any]:
        """`causes`, `ranks`, `communicators`, `next` as in the JSON contract, with what is added to it."""
        data = asdict(self)
        data["causes"] = [cause.as_dict() for cause in self.causes]
        return data
