"""The end of a reading: processes, ranks and events of the parser's state become NcclFacts."""

from __future__ import annotations

import itertools
from typing import Dict, List, Optional, Tuple

from ncdiag.nodeset import counted

from . import communicators, culprits, events, transports
from .event_log import EventLog
from .log_facts import Event, NcclFacts, Rank, Source
from .log_state import DESTROYED, Counters, ProcessState, Profile, RankState, Thread
from .transports import Said, Seen

Banner = Tuple[str, str, Optional[str]]  # source, version, CUDA


def facts(processes: List[ProcessState], said: EventLog, sources: List[Source], banners: List[Banner]) -> NcclFacts:
    """Everything that was read, as plain data."""
    _adopt_versions(processes, banners)
    profiles: Dict[Profile, Profile] = {}
    for index, process in enumerate(processes):
        _finish_process(process)
        profile = communicators.process_profile(process)
        process.profile = profiles.setdefault(profile, profile)
        communicators.finish_ranks(process, index)
        process.facts.stage = communicators.stage_of_process(process)
    found = communicators.group(processes)
    home: Dict[int, int] = {}
    if said.found:
        home = {id(member): communicator.index for communicator in found for member in communicator.ranks}
    numbers = {id(process): index for index, process in enumerate(processes)}
    for event, thread in said.found:
        event.process = numbers[id(thread.process)]
        speaker = _speaks_for(event, thread)
        if speaker is not None:
            event.rank, event.communicator = speaker.facts.rank, home.get(id(speaker.facts))
            if events.ends_a_rank(event):
                speaker.facts.errors += 1
    idle = [process.facts for process in processes if not process.ranks]
    for communicator in found:
        culprits.name(communicator, idle)
    versions = sorted(
        {process.facts.version for process in processes if process.facts.version}
        | {version for _, version, _ in banners}
    )
    return NcclFacts(
        [process.facts for process in processes], found, [event for event, _ in said.found], sources, versions, said.left_out,
        _unplaced(processes), _notes(sources, processes),
    )  # fmt: skip


def _unplaced(processes: List[ProcessState]) -> List[Rank]:
    """The ranks of channel lines that stand without any initialisation, as in a part of a log."""
    found: List[Rank] = []
    for index, process in enumerate(processes):
        by_rank: Dict[int, List[Said]] = {}
        for said in [] if process.ranks else process.unowned:
            by_rank.setdefault(said[0][0], []).append(said)
        for number, lines in sorted(by_rank.items()):
            found.append(Rank(number, index, node=process.facts.host, links=transports.links(lines)))
    return found


def _adopt_versions(processes: List[ProcessState], banners: List[Banner]) -> None:
    """The banner stands alone, without host, in 2.21 and older and at NCCL_DEBUG=WARN: the others of its source, else all, have that version."""
    own = {(process.facts.version or "", process.facts.cuda) for process in processes if process.facts.version_own}
    for process in processes:
        if process.facts.version_own:
            continue
        here = {(version, cuda) for source, version, cuda in banners if source in process.facts.sources}
        everywhere = {(version, cuda) for _, version, cuda in banners} | own
        for candidates in (here, everywhere):
            with_cuda = {one for one in candidates if one[1]} or candidates
            if len(with_cuda) == 1:
                process.facts.version, process.facts.cuda = next(iter(with_cuda))
                break


def _finish_process(process: ProcessState) -> None:
    latest: Dict[str, Thread] = {}
    for thread in process.threads:
        source, number, _ = thread.at
        known = latest.get(source)
        if known is None or number > known.at[1]:
            latest[source] = thread
        if thread.rank is None:
            process.loose.append((thread.links, None))
        else:
            thread.rank.facts.links_left_out += thread.links_left_out
    for links, preferred in [*process.loose, (process.strangers, None)]:
        if links:
            _hand_out(process, links, preferred)
    if latest:
        last = latest.get(process.facts.sources[-1]) or list(latest.values())[-1]
        process.last = last.at


def _hand_out(process: ProcessState, links: Counters, preferred: Optional[RankState]) -> None:
    """Channel lines of a thread that named no communicator (lazy connect): to the last rank of that number begun in the process."""
    for tail, said in links.items():
        rank, count = _rank_of(process, process.seen_links[tail][0], preferred), next(said)
        if rank is None:
            process.unplaced += count
            process.unowned.append((process.seen_links[tail][0], process.seen_links[tail][1], count))
            continue
        goes = rank.late if rank.complete and rank is not preferred else rank.links
        goes[tail] = itertools.count(count + (next(goes[tail]) if tail in goes else 0))


def _rank_of(process: ProcessState, seen: Seen, preferred: Optional[RankState]) -> Optional[RankState]:
    owner, device, (peer, *_), _ = seen
    fits = [rank for rank in process.ranks if rank.number == owner and peer < rank.nranks]
    if preferred in fits:
        return preferred
    fits = [rank for rank in fits if rank.facts.nvml_dev == int(device, 16)] or fits
    alive = [rank for rank in fits if rank.seen < DESTROYED] or fits
    return alive[-1] if alive else None


def _speaks_for(event: Event, thread: Thread) -> Optional[RankState]:
    """The rank of an event: its thread's, the only one of the process, or the one on the event's device when that is clear."""
    if thread.rank is not None:
        return thread.rank
    ranks = thread.process.ranks
    if len(ranks) > 1:
        alive = [rank for rank in ranks if rank.seen < DESTROYED]
        ranks = [rank for rank in alive if not rank.complete] or alive
    return ranks[0] if len(ranks) == 1 else None


def _notes(sources: List[Source], processes: List[ProcessState]) -> List[str]:
    notes = []
    repeated = sum(source.ray_repeated for source in sources)
    if repeated:
        notes.append(f"Ray folded {counted(repeated, 'line')} of other processes; RAY_DEDUP_LOGS=0 shows every one")
    cut = sum(source.cut_lines for source in sources)
    if cut:
        notes.append(f"of {counted(cut, 'line')} longer than 64 KiB only the beginning was read")
    joined = sum(source.joined_lines for source in sources)
    if joined:
        notes.append(
            f"{counted(joined, 'line')} {'holds' if joined == 1 else 'hold'} several records; what could not be told apart was left out (NCCL_DEBUG_FILE=…%h.%p keeps processes apart)"
        )
    if processes and all(process.facts.host is None for process in processes):
        notes.append("the lines carry no host and pid, so ranks cannot be told apart")
    return notes
