"""From ranks to communicators: which ranks belong together, who is missing, how far each is, and who holds up the others."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from .. import nodeset
from . import log_state as state
from . import transports
from .log_facts import STAGES, Communicator, Rank
from .log_state import Devices, ProcessState, Profile, RankState

Spread = Dict[str, Dict[str, str]]  # name -> value -> folded ranks
Alike = Tuple[Tuple[Profile, Tuple[int, ...]], ...]
ORDER = {stage: number for number, stage in enumerate(STAGES)}
_STAGES = list(STAGES)
_AFTER = {
    state.MET: "peers",
    state.TOPOLOGY: "topology",
    state.GRAPH: "graph",
    state.EXCHANGED: "exchange",
    state.CONNECTING: "connect",
    state.CONNECTED: "tuning",
    state.TUNED: "tuning",
    state.COMPLETE: "complete",
    state.DESTROYED: "destroyed",
}
_BEFORE = {
    0: "none",
    state.LOADED: "load",
    state.INTERFACE: "interface",
    state.NETWORK: "network",
    state.CHOSEN: "network",
}


def early_start(process: ProcessState) -> Optional[bool]:
    """Whether this version prints `Init START` before the rendez-vous (2.23 and later). None: the log does not tell."""
    number = version_tuple(process.facts.version)
    if number:
        return number >= (2, 23)
    return None if process.bootstrap_blank is None else not process.bootstrap_blank


def version_tuple(version: Optional[str]) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")) if version else ()


def stage_of_process(process: ProcessState) -> str:
    """The stage of an initialisation that has no communicator yet; without one, of the least advanced rank."""
    pending = process.seen if not process.ranks or process.chosen > len(process.ranks) else 0
    if pending == state.CHOSEN and not early_start(process):
        return "bootstrap"
    if pending or not process.ranks:
        return _BEFORE[pending]
    return _STAGES[min([ORDER[rank.facts.stage] for rank in process.ranks])]


def finish_ranks(process: ProcessState, index: int) -> None:
    """The facts of the ranks of a process, besides those that they read themselves. `index`: of the process."""
    first = "peers" if early_start(process) is False else "bootstrap"
    for rank in process.ranks:
        facts = rank.facts
        facts.process, facts.node = index, process.facts.host
        facts.stage = _AFTER.get(rank.seen, first)
        facts.lazy_connect = bool(rank.late) or rank.connected_late


def group(processes: List[ProcessState]) -> List[Communicator]:
    """Ranks of all processes as communicators, in order of appearance. Sets RankState.facts.process beforehand expected."""
    keys: Dict[
        Tuple[Any, ...], List[int]
    ] = {}  # what ranks of one communicator share -> its communicators, by repetition
    found: List[Communicator] = []
    states: List[Dict[int, RankState]] = []  # rank number -> rank
    home: Dict[int, int] = {}  # id of a RankState -> communicator
    for process in processes:
        for rank in process.ranks:
            key = _key(rank, home)
            index = _place(rank, keys.setdefault(key, []), states)
            if index is None:
                index = len(found)
                found.append(Communicator(index, rank.nranks, rank.comm_id, rank.call, color=rank.color))
                states.append({})
                keys[key].append(index)
            states[index][rank.facts.rank] = rank
            home[id(rank)] = index
            parent = _parent(rank)
            if parent is not None and found[index].parent is None:
                found[index].parent = home.get(id(parent))
    memory: Dict[Alike, Spread] = {}
    for communicator, ranks in zip(found, states):
        _fill(communicator, [ranks[number] for number in sorted(ranks)], memory)
    return found


def _parent(rank: RankState) -> Optional[RankState]:
    """The communicator of the same process that this one was split from: the last one begun at that pointer."""
    if not rank.parent:
        return None
    older = [other for other in rank.process.ranks if other.facts.pointer == rank.parent and other is not rank]
    return older[-1] if older else None


def _key(rank: RankState, home: Dict[int, int]) -> Tuple[Any, ...]:
    if rank.comm_id:
        return "id", rank.comm_id, rank.nranks
    parent = _parent(rank)
    if parent is not None and id(parent) in home:
        return "split", home[id(parent)], rank.color, rank.nranks
    return "size", rank.nranks


def _place(rank: RankState, candidates: List[int], states: List[Dict[int, RankState]]) -> Optional[int]:
    """The first communicator of this key that lacks the rank; one whose last rank is on the same host is preferred."""
    free = [index for index in candidates if rank.number not in states[index]]
    if len(free) < 2:
        return free[0] if free else None
    host = rank.process.facts.host
    here = [index for index in free if next(reversed(states[index].values())).process.facts.host == host]
    return (here or free)[0]


def _fill(communicator: Communicator, ranks: List[RankState], memory: Dict[Alike, Spread]) -> None:
    communicator.ranks = [rank.facts for rank in ranks]
    if communicator.nranks <= 1 << 20:
        communicator.missing = sorted(set(range(communicator.nranks)).difference([rank.number for rank in ranks]))
    stages = _folded([(rank.facts.stage, rank.number) for rank in ranks])
    communicator.stages = {stage: stages[stage] for stage in STAGES if stage in stages}
    orders = next((rank.rings for rank in ranks if rank.rings), {})
    communicator.rings = transports.rings(orders, communicator.nranks)
    _count_transports(communicator, ranks)
    communicator.spread = spread(ranks, memory)


def _folded(pairs: List[Tuple[str, int]]) -> Dict[str, str]:
    values: Dict[str, List[int]] = {}
    for value, rank in pairs:
        values.setdefault(value, []).append(rank)
    return {value: _fold(tuple(ranks)) for value, ranks in sorted(values.items(), key=lambda item: -len(item[1]))}


_fold = functools.lru_cache(maxsize=1024)(nodeset.ranks)  # of a big job's groups, many are alike


def _count_transports(communicator: Communicator, ranks: List[RankState]) -> None:
    node = {rank.number: rank.process.facts.host for rank in ranks}
    nvls = sum([rank.facts.nvls_used for rank in ranks])
    if nvls:
        communicator.transports["NVLS"] = nvls
    everywhere: List[str] = []
    between: List[str] = []
    for rank in ranks:
        here, keys = rank.process.facts.host, rank.link_keys()
        everywhere.extend([via for _, _, _, via in keys])
        if here:
            between.extend([via for peer, _, _, via in keys if (node.get(peer) or here) != here])
    communicator.transports.update(_by_name(everywhere))
    communicator.between_nodes.update(_by_name(between))


def _by_name(ways: List[str]) -> Counter[str]:
    names: Counter[str] = Counter()
    for via, count in Counter(ways).items():
        names[transports.way(via).name] += count
    return names


def spread(ranks: List[RankState], memory: Dict[Alike, Spread]) -> Spread:
    """What the ranks said about themselves, value -> folded ranks, the most common value first. Settings stand under their own name.

    `memory`: of the same profiles on the same ranks the result is known, as for the many equal groups of a big job.
    """
    by_object: Dict[int, Tuple[Profile, List[int]]] = {}  # most equal profiles are one object
    for rank in ranks:
        for profile in (rank.process.profile, _rank_profile(rank.facts)):
            known = by_object.get(id(profile))
            if known is None:
                by_object[id(profile)] = profile, [rank.number]
            else:
                known[1].append(rank.number)
    alike: Dict[Profile, List[int]] = {}
    for profile, numbers in by_object.values():
        alike.setdefault(profile, []).extend(numbers)
    key = tuple((profile, tuple(numbers)) for profile, numbers in alike.items())
    found = memory.get(key)
    if found is None:
        values: Dict[str, List[Tuple[str, int]]] = {}
        for profile, numbers in alike.items():
            for name, value in profile:
                values.setdefault(name, []).extend([(value, number) for number in numbers])
        found = memory[key] = {
            name: _folded(values[name]) for name in sorted(values, key=lambda name: (name.startswith("NCCL_"), name))
        }
    return {name: dict(folded) for name, folded in found.items()}


def process_profile(state: ProcessState) -> Profile:
    """What a process said about itself, name and value, settings (at most 500) last."""
    process = state.facts
    names, count = _device_names(state.device_names())
    said = {
        "version": process.version,
        "git": process.git,
        "cuda_driver": str(process.cuda_driver) if process.cuda_driver else None,
        "bootstrap_interface": process.bootstrap_interface,
        "bootstrap_network": _subnet(process.bootstrap_address) if process.bootstrap_address else None,
        "network": process.network,
        "net_devices": names,
        "net_device_count": count,
        "oob_interface": process.oob_interface,
        **{name: process.settings[name] for name in sorted(process.settings)[:500]},
    }
    return tuple([(name, value) for name, value in said.items() if value is not None])


@functools.lru_cache(maxsize=256)
def _device_names(devices: Devices) -> Tuple[Optional[str], Optional[str]]:
    """The names of devices, and how many."""
    names = [
        name + (f":{port}" if port is not None else "") + (f"/{link}" if link else "")
        for _, name, port, link, *_ in devices
    ]
    return (" ".join(names), str(len(names))) if names else (None, None)


def _rank_profile(rank: Rank) -> Profile:
    return _profile(
        rank.local_ranks, rank.n_nodes, rank.coll_channels, rank.net_device_count, rank.ring_gdr, rank.nvls
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _profile(
    local_ranks: Optional[int], n_nodes: Optional[int], coll_channels: Optional[int], local_net_devices: Optional[int],
    ring_gdr: Optional[bool], nvls: Optional[bool],
) -> Profile:  # fmt: skip
    numbers = {
        "local_ranks": local_ranks,
        "n_nodes": n_nodes,
        "coll_channels": coll_channels,
        "local_net_devices": local_net_devices,
        "ring_gdr": None if ring_gdr is None else int(ring_gdr),
    }
    found = [(name, str(number)) for name, number in numbers.items() if number is not None]
    return tuple([*found, ("nvls", "available" if nvls else "not available")] if nvls is not None else found)


@functools.lru_cache(maxsize=1024)
def _subnet(address: str) -> str:
    """The first three numbers of an IPv4 address, or the first four groups of an IPv6 one: enough to see who is elsewhere."""
    if "." in address and ":" not in address:
        return address.rpartition(".")[0] + ".*"
    return ":".join(address.split("%")[0].split(":")[:4]) + ":*"
