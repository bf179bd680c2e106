"""nccl-tests, torchrun scripts and iteration lines: did it work, and how fast."""

from __future__ import annotations

import re
from collections.abc import Iterator

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


class Bench:
    """Output of nccl-tests."""

    triggers = ("Avg bus bandwidth", "# nThread", "#  Rank ", "float", "Out of bounds values", "Destroy COMPLETE")

    def __init__(self) -> None:
        self.average: tuple[float, Line] | None = None
        self.averages: list[Line] = []
        """Where runs end that had bandwidth."""
        self.rows: dict[int, set[str]] = {}
        """Size -> what its rows say, of a few: two processes never take the same time to the letter."""
        self.busbw: list[float] = []
        self.ranks: set[int] = set()
        self.pids: set[tuple[str, str]] = set()
        self.hosts: set[str] = set()
        self.ones: list[Line] = []
        self.larger = False
        self.first: Line | None = None
        self.last: Line | None = None

    def take(self, line: Line) -> bool:
        text = line.text
        average, row, header, done = _AVERAGE.search(text), _ROW.search(text), _HEADER.search(text), _DONE.search(text)
        if average:
            self.average = (float(average["value"]), line)
            if self.average[0] > 0 and len(self.averages) < RUNS:
                self.averages.append(line)
        elif row:
            self.first, self.last = self.first or line, line
            rows = self.rows.setdefault(int(row["size"]), set())
            if len(rows) < 2:
                rows.add(text.strip())
            if len(self.busbw) < 100_000:
                self.busbw.append(float(row["bus"]))
        elif header:
            self.ranks.add(int(header["rank"]))
            self.pids.add((header["host"], header["pid"]))
            self.hosts.add(header["host"])
        elif done:
            if int(done["nranks"]) == 1:
                self.ones.append(line)
            else:
                self.larger = True
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        repeated = max(map(len, self.rows.values()), default=0) > 1
        zero = bool(self.busbw) and not any(self.busbw)
        alone = zero or (self.average is not None and self.average[0] == 0)
        apart = len(self.pids) > 1 and self.ranks == {0}
        if not self.larger and ((alone and (repeated or self.ones)) or (apart and (alone or repeated))):
            lines = [
                line
                for line in (*self.ones[:2], self.first, self.average[1] if self.average else None)
                if line is not None
            ]
            yield Signal(
                "rank-layout-wrong",
                Says.NAMED,
                "every process is a job of its own with one rank (bus bandwidth 0): the binary was built without MPI, or the launcher does not pass ranks on",
                [line.evidence() for line in lines],
                order=lines[0].order if lines else 0.0,
                remedy="build with MPI=1 (make clean first), the same binary on all nodes; or launch with the MPI it was built for",
            )

    @property
    def worked(self) -> Line | None:
        """The line that shows a finished run with bandwidth."""
        if self.average is not None:
            again = self.last is not None and self.last.order > self.average[1].order
            return (self.last if again else self.average[1]) if self.average[0] > 0 else None
        return self.last if len(self.busbw) >= ROWS and any(self.busbw) else None
