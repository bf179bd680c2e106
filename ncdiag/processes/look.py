"""How to look at processes, and what was read of each on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from ncdiag.model import RankState
from ncdiag.processes import kernel, logtail, progress, pulse, stacks
from ncdiag.processes.family import Member

WINDOW_S = 3.0
BUDGET_S = 30.0
MANAGERS = ("api-server", "engine-core", "headless", "launcher", "coordinator")
"""Roles that are no ranks: they start and wait for them."""
NATIVE_OVER_S = 1.0
"""How far native reads may go beyond the window; on a machine that is overloaded Python frames have to do."""


@dataclass(frozen=True)
class Options:
    """How to look."""

    window_s: float = WINDOW_S
    native: str = "auto"
    """`auto`: of the odd ones and of two of every group of equal stacks; `all`; `none`."""
    nonblocking: bool = False
    """Never pause a process."""
    variables: bool = False
    """Keep the local variables of `stacks.LOCALS`."""
    budget_s: float = BUDGET_S
    """Seconds after which no further stack is read."""


@dataclass
class Look:
    """All that was read of one process on the way."""

    member: Member
    state: RankState
    kernel: kernel.KernelFacts = field(default_factory=kernel.KernelFacts)
    counters: progress.Counters | None = None
    still_s: dict[int, float] = field(default_factory=dict)
    """Thread id -> seconds in which it has not run, before it was paused: the main thread's, and those of threads in code of the program."""
    at: float = 0.0
    """`time.monotonic()` of `turns`."""
    turns: dict[int, int] = field(default_factory=dict)
    """`pulse.turns` at the beginning, or, where it was paused since, after that."""
    paused: bool = False
    """Whether a stack of it was read with a pause, which wakes its threads."""
    pulse: pulse.Pulse | None = None
    """Taken when the stacks of the first look were read."""
    first: stacks.Stacks = field(default_factory=stacks.Stacks)
    gpu_bytes: int = 0
    done: bool = False
    """Whether its stack was read twice already."""


@dataclass
class Sample:
    """Everything about one engine on this machine at one time."""

    states: list[RankState]
    logs: dict[str, logtail.Log] = field(default_factory=dict)
    """Log files that its processes write to, by name."""
    notes: list[str] = field(default_factory=list)
    """What could not be read of the machine as a whole."""
