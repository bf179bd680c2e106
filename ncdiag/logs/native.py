"""Backtraces of gdb, pstack and eu-stack: which process stands elsewhere while the others wait for the GPU or in a collective.

Source: `gdb -p PID -batch -ex bt` (and `thread apply all bt`), `pstack PID`, `eu-stack -p PID`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import STANDING, Line
from ncdiag.nodeset import counted

_FRAME = re.compile(r"^\s*#(?P<number>\d+)\s+(?:0x[0-9a-f]+\s+)?(?:in\s+)?(?P<name>[\w:~<>?][^\s(]*)")
_PROCESS = re.compile(
    r"(?i)(?P<what>rank|pid|process|gdb (?:-\w+ )*-p|pstack|eu-stack (?:-\w+ )*-p|attach(?:ing)? to (?:process|program)?)\W{0,3}(?P<number>\d+)"
)
_THREAD = re.compile(r"^Thread (?P<number>\d+) \(|^TID \d+:")
_WAITS = re.compile(
    r"^(?:cuda(?:Stream|Device|Event)Synchronize|cu(?:Stream|Ctx|Event)Synchronize|hip(?:Stream|Device|Event)Synchronize|nccl(?:Group|AllReduce|AllGather|ReduceScatter|Broadcast|Send|Recv)\w*"
    r"|bootstrap\w*|P?MPI_(?:Barrier|Allreduce|Allgather|Alltoall|Bcast|Wait\w*|Recv)|gloo::\w+|c10d::\w*)"
)
_BARE = re.compile(
    r"^(?:\?\?|__?\w*(?:futex|lll_lock|clone|GI_)\w*|futex\w*|pthread_\w+|___pthread_\w+|poll|__poll|select|epoll_wait|read|__read|nanosleep|clock_nanosleep|sched_yield|syscall|start_thread)$"
)
LIMIT = 10_000  # stacks kept
GAP = 40  # lines without a frame, after which no more is expected
FRAMES = 40  # of one stack


@dataclass
class _Stack:
    process: str
    """`rank 3` or `pid 77`."""
    line: Line
    frames: list[str] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return any(_WAITS.match(name) for name in self.frames)

    @property
    def place(self) -> str:
        """The first frame that says something."""
        return next((name for name in self.frames if not _BARE.match(name)), self.frames[0])


class Native:
    """The first thread of each process."""

    triggers = ("#0 ", "=== rank", "gdb -p", "gdb -batch", "pstack ", "eu-stack ", "Attaching to ")

    def __init__(self) -> None:
        self._found: dict[str, _Stack] = {}
        self._current: _Stack | None = None
        self._process = ""
        self._thread = "1"
        self._left = GAP

    def take(self, line: Line) -> bool:
        text = line.text
        frame = _FRAME.match(text)
        if frame is None:
            process, thread = _PROCESS.search(text), _THREAD.match(text)
            if process:
                self._process = f"{'rank' if process['what'].lower() == 'rank' else 'pid'} {process['number']}"
                self._thread = "1"
            if thread:
                self._thread = thread["number"] or "1"
            self._left -= 1
            return self._left > 0
        self._left = GAP
        if frame["number"] == "0":
            self._current = None
            if self._thread == "1" and len(self._found) < LIMIT:
                name = self._process or f"stack {len(self._found) + 1}"
                self._current = self._found.setdefault(f"{line.source}:{name}", _Stack(name, line))
        if self._current is not None and len(self._current.frames) < FRAMES:
            self._current.frames.append(frame["name"])
        return True

    def end(self, source: str) -> None:
        self._current, self._process, self._thread, self._left = None, "", "1", GAP

    def signals(self) -> Iterator[Signal]:
        stacks = [stack for stack in self._found.values() if stack.frames]
        waiting = [stack for stack in stacks if stack.waits]
        outside = [stack for stack in stacks if not stack.waits]
        if len(waiting) < 2 or len(outside) >= len(waiting):
            return
        if outside:
            first = outside[0]
            yield Signal(
                "rank-stuck-outside-collective",
                Says.STRONG,
                f"{', '.join(stack.process for stack in outside[:4])} stands in {first.place} while {counted(len(waiting), 'other')} wait{'s' if len(waiting) == 1 else ''} for the GPU or in a collective",
                [stack.line.evidence() for stack in [*outside[:3], *waiting[:3]]],
                {first.process.split()[0]: int(first.process.split()[1])}
                if first.process[:4] in ("rank", "pid ")
                else {},
                order=first.line.order,
            )
        else:
            yield Signal(
                "",
                Says.SYMPTOM,
                "every process in these backtraces waits for the GPU or in a collective",
                [stack.line.evidence() for stack in waiting[:3]],
                order=STANDING - 1,
                candidates=("collective-desync", "gpu-hardware-fault", "ib-path-unreachable"),
            )
