"""Printed environments of several pods or hosts, one a line: RANK that two of them have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import TOLD_TWICE
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked

_OF = re.compile(
    r"(?:^|[\s\[(])(?P<name>[A-Za-z][\w.-]{0,80})[\])]?:? .*?\bRANK=(?P<rank>\d{1,7})\b(?=.*\bWORLD_SIZE=(?P<world>\d{1,7})\b)"
)
_PAIR = re.compile(r"^(?P<name>[A-Z_]{1,40})=(?P<n>\d{1,7})$")
_ROW = re.compile(r"^\s*\d{1,9}:? .*?\bRANK=(?P<rank>\d{1,7})\b(?=.*\bWORLD_SIZE=(?P<world>\d{1,7})\b)")
LIMIT = 100_000  # lines


class RankTable:
    """Who has which rank."""

    triggers = ("RANK=", "/environ")

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Line]] = {}
        self._world = 0
        self._lines = 0
        self._host = ""
        """On which the environments are read that follow, one a process."""
        self._one: dict[str, tuple[int, Line]] = {}
        self._singly = False
        """Whether only some processes' environments were looked at."""

    def take(self, line: Line) -> bool:
        question = asked(line.shown)
        if question is not None:
            self._host, self._one = question.host if "/environ" in question.command else "", {}
            return bool(self._host)
        if self._host and (pair := _PAIR.match(line.text)):
            self._one.setdefault(pair["name"], (int(pair["n"]), line))
            self._whole()
            return True
        found = _OF.search(line.shown) or (_ROW.match(line.text) if self._host else None)
        if found and self._lines < LIMIT:
            self._lines += 1
            self._world = int(found["world"])
            name = found.groupdict().get("name") or self._host
            self._found.setdefault(int(found["rank"]), {}).setdefault(name, line)
        return False

    def _whole(self) -> None:
        """One process's environment, a variable a line, has told both."""
        if "RANK" in self._one and "WORLD_SIZE" in self._one and self._lines < LIMIT:
            (rank, at), (self._world, _) = self._one["RANK"], self._one["WORLD_SIZE"]
            self._lines += 1
            self._found.setdefault(rank, {}).setdefault(self._host, at)
            self._singly = self._singly or self._world > 1

    def end(self, source: str) -> None:
        self._host = ""

    def signals(self) -> Iterator[Signal]:
        twice = {rank: names for rank, names in self._found.items() if len(names) > 1}
        missing = [str(number) for number in range(min(self._world, LIMIT)) if number not in self._found]
        several = len(twice) * 2 > len(self._found)  # two jobs, unless just so many are missing
        if (
            not twice
            or (len(self._found) < 2 and not self._singly)
            or (several and not self._singly and len(missing) != sum(len(names) - 1 for names in twice.values()))
        ):
            return
        rank, names = next(iter(twice.items()))
        lines = list(names.values())
        nobody = f", and none is rank {', '.join(missing[:6])}" if missing and len(missing) == len(twice) else ""
        yield Signal(
            "rank-layout-wrong",
            Says.STRONG,
            f"{' and '.join(list(names)[:4])} are all told that they are rank {rank} of {self._world}{nobody}",
            [line.evidence() for line in lines[:4]],
            {"rank": rank},
            order=lines[0].order,
            remedy="take RANK from what counts the processes (completion index, SLURM_PROCID, torchrun's --node-rank), never from a template that is copied",
            kind=TOLD_TWICE,
        )
