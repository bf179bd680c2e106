"""NCCL RAS's text report in what was pasted: ranks that have launched different numbers of collectives, unless a later look finds them equal.

Source: the forms of 2.24 to 2.32. A job that works shows a difference too, when it is asked between two launches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.nccl.ras_text import COUNTED, LAUNCHED, ROW

_RANK = re.compile(r"\s*Rank (?P<rank>\d+)\b")
LOOK_ON = 300  # lines after the difference in which a later look is sought


@dataclass
class _Look:
    """One report that shows a difference."""

    line: Line
    counts: dict[int, Line] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    """Rank -> operations launched, of those named one by one."""
    later: Line | None = None
    """A row of a later report in which all ranks are equal."""


class Ras:
    """Counts of launched operations."""

    triggers = ("operation counts",)

    def __init__(self) -> None:
        self._looks: list[_Look] = []
        self._left = 0

    def take(self, line: Line) -> bool:
        if "operation counts" in line.text and "different" in line.text:
            if len(self._looks) < 1000:
                self._looks.append(_Look(line))
            self._left = LOOK_ON
            return True
        self._left -= 1
        if not self._looks or self._left <= 0:
            return False
        look, text = self._looks[-1], line.text
        rank, row = _RANK.match(text), ROW.match(text)
        counted = LAUNCHED.search(text) if rank else COUNTED.match(text.lstrip())
        if counted is not None:
            count = int(counted["count"] or 0)
            look.counts.setdefault(count, line)
            if rank is not None and len(look.ranks) < 1000:
                look.ranks[int(rank["rank"])] = count
        if row is not None and (row["status"], row["errors"]) == ("RUNNING", "OK"):
            for before in self._looks:
                before.later = before.later or (line if before.line.source == line.source else None)
        return True

    def end(self, source: str) -> None:
        self._left = 0

    def signals(self) -> Iterator[Signal]:
        for look in self._looks:
            if look.later is not None:
                continue
            least, most = min(look.counts, default=0), max(look.counts, default=0)
            behind = sorted(rank for rank, count in look.ranks.items() if count == least < most)
            names = ", ".join(map(str, behind[:6]))
            yield Signal(
                "collective-desync",
                Says.STRONG,
                "NCCL RAS: the ranks of a communicator have launched different numbers of collectives"
                + (f": rank {names} {least}, others up to {most}" if behind else ""),
                [look.line.evidence(), *[line.evidence() for _, line in sorted(look.counts.items())[:3]]],
                {"rank": names} if behind else {},
                order=look.line.order,
                candidates=("rank-stuck-outside-collective",),
            )
