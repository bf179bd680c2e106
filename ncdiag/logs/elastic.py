"""torchrun's report of failures: who ended first, on which host, with which code.

Source: torch.distributed.elastic.multiprocessing.errors of torch 1.9 to 2.9.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ncdiag.explain import Signal
from ncdiag.logs.model import Line

_FIELD = re.compile(r"^\s*(?P<key>host|rank|exitcode)\s*: (?P<value>\S.*)$")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,5})\)")
_PID = re.compile(r"\(pid: (?P<pid>\d{1,9})\)")
LINES = 12  # from the heading to the last field
FAILURES_LIMIT = 1000


class Elastic:
    """The failures of such reports by process."""

    triggers = ("Root Cause (first observed failure)", "Other Failures:", "  host      : ")

    def __init__(self) -> None:
        self.failures: dict[int, dict[str, Any]] = {}
        """Process -> its `node`, `rank` and `local_rank`."""
        self._open: dict[str, Any] = {}
        self._left = 0

    def take(self, line: Line) -> bool:
        field = _FIELD.match(line.text)
        if field is None:
            self._left = LINES if any(word in line.text for word in self.triggers) else self._left - 1
            return self._left > 0
        key, value = field["key"], field["value"]
        self._left = LINES
        rank, pid = _RANK.match(value), _PID.search(value)
        if key == "host":
            self._open = {"node": value.strip()}
        elif key == "rank" and rank:
            self._open.update(rank=int(rank["rank"]), local_rank=int(rank["local_rank"]))
        elif key == "exitcode" and pid and len(self._open) > 1 and len(self.failures) < FAILURES_LIMIT:
            self.failures[int(pid["pid"])] = self._open
        return True

    def end(self, source: str) -> None:
        self._open, self._left = {}, 0

    def signals(self) -> tuple[()]:
        return ()

    def place(self, signals: Sequence[Signal]) -> None:
        """Names host and rank of processes of which only the number is known."""
        for signal in signals:
            for key, value in self.failures.get(signal.where.get("pid", -1), {}).items():
                signal.where.setdefault(key, value)
