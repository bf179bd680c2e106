"""Logs of different jobs, read together -> the facts of each: what differs between two jobs is no difference between the nodes of one.

A log says that it is complete when each of its communicators has all its ranks: nobody is missing who might stand in another file. Where another file
has a communicator of the same size, both may be groups of one job (tensor parallel groups, one a node), and stay together.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TypeVar

from ncdiag.nccl.log_facts import Communicator, Event, NcclFacts, Rank

_Spoken = TypeVar("_Spoken", Event, Rank)


def jobs(facts: NcclFacts) -> list[NcclFacts]:
    """The facts, or each job's own when there are several. Those of the first are of everything that is not known to be complete."""
    groups = _groups(facts)
    sizes = [_size(facts, group) for group in groups]
    if len(groups) < 2 or not any(sizes):
        return [facts]
    by_size: dict[int, set[str]] = {0: set()}
    for group, size in zip(groups, sizes, strict=True):
        by_size.setdefault(size, set()).update(group)
    return [_part(facts, sources) for sources in by_size.values() if sources]


def _sources(facts: NcclFacts, comm: Communicator) -> set[str]:
    return {source for rank in comm.ranks for source in facts.processes[rank.process].sources}


def _groups(facts: NcclFacts) -> list[set[str]]:
    """Sources that share a process or a communicator."""
    groups: list[set[str]] = []
    shared = [_sources(facts, comm) for comm in facts.communicators]
    for sources in [*(set(process.sources) for process in facts.processes), *shared]:
        joined = [group for group in groups if group & sources]
        if len(joined) == 1 and sources <= joined[0]:
            continue
        groups = [*(group for group in groups if not group & sources), sources.union(*joined)]
    return groups


def _size(facts: NcclFacts, group: set[str]) -> int:
    """Ranks of the largest communicator of a complete job; 0 where one may be missing."""
    comms = [comm for comm in facts.communicators if _sources(facts, comm) & group]
    members = {rank.process for comm in comms for rank in comm.ranks}
    inside = {index for index, process in enumerate(facts.processes) if group.intersection(process.sources)}
    if inside - members or any(len(comm.ranks) < comm.nranks for comm in comms):
        return 0
    largest = max((comm.nranks for comm in comms), default=0)
    return largest if largest > 1 else 0


def _moved(item: _Spoken, process: int) -> _Spoken:
    """The same of the process with another index."""
    moved = copy.copy(item)
    moved.process = process
    return moved


def _part(facts: NcclFacts, sources: set[str]) -> NcclFacts:
    """The facts that these sources hold."""
    kept = [index for index, process in enumerate(facts.processes) if sources.intersection(process.sources)]
    new = {old: index for index, old in enumerate(kept)}
    return replace(
        facts,
        processes=[facts.processes[index] for index in kept],
        communicators=[
            replace(comm, ranks=[_moved(rank, new[rank.process]) for rank in comm.ranks])
            for comm in facts.communicators
            if any(rank.process in new for rank in comm.ranks)
        ],
        unplaced=[_moved(rank, new[rank.process]) for rank in facts.unplaced if rank.process in new],
        events=[
            event if event.process is None else _moved(event, new[event.process])
            for event in facts.events
            if event.process in new or (event.process is None and event.at.source in sources)
        ],
    )
