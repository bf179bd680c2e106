"""Ranks as launch scripts announce them: the same rank twice, or fewer than the world has.

Source: Lightning's `GLOBAL_RANK: 1, MEMBER: 2/8`, and the environment that scripts print (`'RANK': '0', 'WORLD_SIZE': '4'`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import STANDING, Line
from ncdiag.nodeset import ranks

_MEMBER = re.compile(r"GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/(?P<world>\d+)")


class Members:
    """One job per source."""

    triggers = ("GLOBAL_RANK: ",)

    def __init__(self) -> None:
        self._seen: dict[str, dict[int, list[Line]]] = {}
        self._world = 0

    def take(self, line: Line) -> bool:
        match = _MEMBER.search(line.text)
        if match:
            self._world = max(self._world, int(match["world"]))
            lines = self._seen.setdefault(line.source, {}).setdefault(int(match["rank"]), [])
            if len(lines) < 4:
                lines.append(line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        for found in self._seen.values():
            twice = {rank: lines for rank, lines in found.items() if len(lines) > 1}
            if twice and len(twice) * 2 > len(found):
                lines = next(iter(twice.values()))
                yield Signal(
                    "rank-layout-wrong",
                    Says.STRONG,
                    f"several processes are rank {ranks(twice)} of {self._world}: the launcher starts more processes than it gives ranks to",
                    [line.evidence() for line in lines],
                    {"rank": ranks(twice)},
                    order=lines[0].order,
                    remedy="one task per GPU in the launcher (srun --ntasks-per-node, torchrun --nproc-per-node), and its rank variables passed on",
                )
        every = {rank for found in self._seen.values() for rank in found}
        if every and len(every) < self._world:
            line = next(iter(next(iter(self._seen.values())).values()))[0]
            yield Signal(
                "",
                Says.SYMPTOM,
                f"rank {ranks(every)} of {self._world} came up, the others are not in here",
                [line.evidence()],
                order=STANDING - 2,
                candidates=("rank-missing", "rank-layout-wrong", "bootstrap-blocked-firewall"),
            )
