"""nccl-tests, torchrun scripts and iteration lines: did it work, and how fast."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(?P<value>\d+(?:\.\d+)?)")
_ROW = re.compile(
    r"^\s*(?P<size>\d+)\s+\d+\s+(?:float|half|bfloat16|double|int\d+|uint\d+|fp8\w*)\s+\w+\s+-?\d+\s+\d+(?:\.\d+)?\s+(?P<alg>\d+(?:\.\d+)?)\s+(?P<bus>\d+(?:\.\d+)?)"
)
_HEADER = re.compile(
    r"#\s+Rank\s+(?P<rank>\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(?P<pid>\d+) on\s+(?P<host>\S+) device\s+(?P<device>\d+)"
)
_DONE = re.compile(
    r"comm 0x\w+ rank (?P<rank>\d+) nranks (?P<nranks>\d+) cudaDev \d+ busId \w+ - (?:Destroy COMPLETE|Init COMPLETE)"
)
RUNS = 1000  # whose ends are kept
ROWS = 3  # rows with bandwidth that show a test at work


@dataclass
class _Output:
    """What one source, or several together, hold of it."""

    rows: dict[int, set[str]] = field(default_factory=dict)
    """Size -> what its rows say, of a few: two processes never take the same time to the letter."""
    works: bool = False
    average: tuple[float, Line] | None = None
    ranks: set[int] = field(default_factory=set)
    pids: set[tuple[str, str]] = field(default_factory=set)
    ones: list[Line] = field(default_factory=list)
    larger: bool = False
    first: Line | None = None

    def add(self, other: _Output) -> _Output:
        for size, rows in other.rows.items():
            self.rows.setdefault(size, set()).update(rows)
        self.works |= other.works
        self.average = other.average or self.average
        self.ranks |= other.ranks
        self.pids |= other.pids
        self.ones += other.ones
        self.larger |= other.larger
        self.first = self.first or other.first
        return self

    def alone(self) -> bool:
        """Whether its processes are each a job of their own."""
        repeated = max(map(len, self.rows.values()), default=0) > 1
        zero = (bool(self.rows) and not self.works) or (self.average is not None and self.average[0] == 0)
        apart = len(self.pids) > 1 and self.ranks == {0}
        return not self.larger and ((zero and (repeated or bool(self.ones))) or (apart and (zero or repeated)))


class Bench:
    """Output of nccl-tests."""

    triggers = ("Avg bus bandwidth", "# nThread", "#  Rank ", "float", "Out of bounds values", "Destroy COMPLETE")

    def __init__(self) -> None:
        self.average: tuple[float, Line] | None = None
        self.averages: list[Line] = []
        """Where runs end that had bandwidth."""
        self.hosts: set[str] = set()
        self.last: Line | None = None
        self._rows = 0
        self._outputs: dict[str, _Output] = {}

    def take(self, line: Line) -> bool:
        text = line.text
        output = self._outputs.setdefault(line.source, _Output())
        average, row, header, done = _AVERAGE.search(text), _ROW.search(text), _HEADER.search(text), _DONE.search(text)
        if average:
            self.average = output.average = (float(average["value"]), line)
            if self.average[0] > 0 and len(self.averages) < RUNS:
                self.averages.append(line)
        elif row:
            output.first, self.last = output.first or line, line
            rows = output.rows.setdefault(int(row["size"]), set())
            if len(rows) < 2:
                rows.add(text.strip())
            self._rows += 1
            output.works |= float(row["bus"]) != 0
        elif header:
            output.ranks.add(int(header["rank"]))
            output.pids.add((header["host"], header["pid"]))
            self.hosts.add(header["host"])
        elif done:
            if int(done["nranks"]) > 1:
                output.larger = True
            elif len(output.ones) < 2:
                output.ones.append(line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        every = list(self._outputs.values())
        idle = [output for output in every if not output.works and not output.larger]
        for found in (reduce(_Output.add, some, _Output()) for some in (every, idle)):
            if found.alone():
                average = found.average[1] if found.average else None
                lines = [line for line in (*found.ones[:2], found.first, average) if line is not None]
                yield Signal(
                    "rank-layout-wrong",
                    Says.NAMED,
                    "every process is a job of its own with one rank (bus bandwidth 0): the binary was built without MPI, or the launcher does not pass ranks on",
                    [line.evidence() for line in lines],
                    order=lines[0].order if lines else 0.0,
                    remedy="build with MPI=1 (make clean first), the same binary on all nodes; or launch with the MPI it was built for",
                )
                return

    @property
    def worked(self) -> Line | None:
        """The line that shows a finished run with bandwidth."""
        if self.average is not None:
            again = self.last is not None and self.last.order > self.average[1].order
            return (self.last if again else self.average[1]) if self.average[0] > 0 else None
        works = any(output.works for output in self._outputs.values())
        return self.last if self._rows >= ROWS and works else None
