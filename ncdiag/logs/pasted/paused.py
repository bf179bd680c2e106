"""`squeue` and the files of the cgroup freezer: jobs and containers that are paused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_FREEZER = re.compile(r"(?:cgroup\.freeze|freezer\.state)\s*$")


class Paused:
    """What stands alone on the line after its question, or in the column of its heading."""

    triggers = ("cgroup.freeze", "freezer.state", "JOBID")

    def __init__(self) -> None:
        self._asked = False
        self._state: int | None = None
        self._found: list[tuple[str, Line]] = []

    def take(self, line: Line) -> bool:
        cells = line.text.split()
        if "JOBID" in cells and "ST" in cells:
            self._state = cells.index("ST")
            return True
        if self._asked and line.text.strip() in ("1", "FROZEN"):
            self._keep("a container is frozen (cgroup freezer)", line)
        asked, self._asked = self._asked, _FREEZER.search(line.text) is not None
        row = self._state is not None and len(cells) > self._state and cells[0][:1].isdecimal()
        if row and self._state is not None and cells[self._state] == "S":
            self._keep(f"job {cells[0]} is suspended (squeue: S)", line)
        self._state = self._state if row else None
        return self._asked or row or (asked and not cells)

    def _keep(self, what: str, line: Line) -> None:
        if len(self._found) < 100:
            self._found.append((what, line))

    def end(self, source: str) -> None:
        self._asked, self._state = False, None

    def signals(self) -> Iterator[Signal]:
        if self._found:
            what, line = self._found[0]
            yield Signal(
                "rank-stopped",
                Says.STRONG,
                what,
                [item.evidence() for _, item in self._found[:4]],
                order=line.order,
                remedy="let it go on: docker unpause, `echo 0 > cgroup.freeze`, scontrol resume",
            )
