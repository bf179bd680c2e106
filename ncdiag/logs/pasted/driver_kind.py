"""`/proc/driver/nvidia/version` of several nodes: the open kernel modules give NCCL DMA-BUF, the proprietary ones need nvidia_peermem for GPUDirect RDMA.

Source: NVIDIA's GPUDirect RDMA guide; the two wordings of the file, drivers 515 to 580.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked, fronted

_KIND = re.compile(r"NVRM version: NVIDIA UNIX (?P<open>Open )?(?:\w+ )?Kernel Module\b")
LIMIT = 10_000  # nodes


class DriverKind:
    """Which nodes have which."""

    triggers = ("NVRM version: ", "/proc/driver/nvidia/version")

    def __init__(self) -> None:
        self._open: dict[str, Line] = {}
        self._closed: dict[str, Line] = {}
        self._at = ""

    def take(self, line: Line) -> bool:
        question, (host, _) = asked(line.text), fronted(line)
        if question is not None:
            self._at = question.host
            return True
        kind = _KIND.search(line.text)
        if kind is None:
            self._at = ""
            return False
        found = self._open if kind["open"] else self._closed
        if len(found) < LIMIT:
            found.setdefault(host or self._at or line.source, line)
        return True

    def end(self, source: str) -> None:
        self._at = ""

    def signals(self) -> Iterator[Signal]:
        if not self._open or not self._closed or self._open.keys() & self._closed.keys():
            return
        names = ", ".join(sorted(self._closed)[:6])
        yield Signal(
            "gdr-disabled",
            Says.HINT,
            f"{names} runs the proprietary kernel module, {', '.join(sorted(self._open)[:6])} the open one: only that has DMA-BUF, the other needs nvidia_peermem",
            [line.evidence() for line in (*list(self._closed.values())[:2], *list(self._open.values())[:1])],
            {"node": sorted(self._closed)[0]},
            condition=True,
            order=next(iter(self._closed.values())).order,
            remedy="the open kernel modules on all nodes, or nvidia_peermem loaded where the proprietary one runs",
        )
