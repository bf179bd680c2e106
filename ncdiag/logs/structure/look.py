"""The facts of one job, with where and when each was said."""

from __future__ import annotations

from typing import Optional

from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Line, NcclFacts, Process

EARLY = frozenset({"none", "load", "interface", "network", "bootstrap"})
"""Stages before all ranks have met."""


class Look:
    """The facts of one job, and what all rooms ask of them."""

    def __init__(self, facts: NcclFacts, order: dict[str, float], several: bool) -> None:
        self.facts = facts
        self._order = order
        self._several = several

    def at(self, line: Optional[Line]) -> tuple[list[Evidence], float]:
        if line is None:
            return [], 0.0
        return [Evidence(line.source, line.text.strip(), line.line)], self._order.get(line.source, 0.0) + line.line

    def of(self, process: Process, *keys: str) -> Optional[Line]:
        for key in keys:
            if key in process.evidence:
                return process.evidence[key]
        return process.last

    def of_one_host(self) -> set[int]:
        """Processes whose communicators have all their ranks, on one host: they do not need to be reached from others."""
        within: set[int] = set()
        between: set[int] = set()
        for comm in self.facts.communicators:
            members = {rank.process for rank in comm.ranks}
            hosts = {self.facts.processes[index].host for index in members}
            (within if 1 < comm.nranks == len(comm.ranks) and len(hosts) == 1 else between).update(members)
        return within - between

    def several_nodes(self) -> bool:
        return any((rank.n_nodes or 0) > 1 for comm in self.facts.communicators for rank in comm.ranks)

    def unfinished(self) -> bool:
        return any(rank.stage in EARLY for comm in self.facts.communicators for rank in comm.ranks)
