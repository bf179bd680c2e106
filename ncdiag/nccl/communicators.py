"""From ranks to communicators: which ranks belong together, who is missing, how far each is, and who holds up the others."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple

from .. import nodeset
from . import log_state as state
from . import transports
from .log_facts import STAGES, Communicator, Link, NetDevice, Process, Rank
from .log_state import ProcessState, Profile, RankState, line

Spread = Dict[str, Dict[str, str]]  # name -> value -> folded ranks
Alike = Tuple[Tuple[Profile, Tuple[int, ...]], ...]
ORDER = {stage: number for number, stage in enumerate(STAGES)}
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
    return min((rank.facts.stage for rank in process.ranks), key=lambda stage: ORDER[stage])


def finish_rank(rank: RankState) -> Rank:
    """The facts of a rank, its raw lines read."""
    facts = rank.facts
    if rank.seen <= state.START:
        facts.stage = "peers" if early_start(rank.process) is False else "bootstrap"
    else:
        facts.stage = _AFTER[rank.seen]
    facts.stage_at = line(rank.at) if rank.at else None
    facts.node = rank.process.facts.host
    facts.lazy_connect = bool(rank.late) or rank.connected_late
    facts.trees = rank.tree.decode("ascii", "replace")
    facts.bootstrap_s = transports.seconds(rank.bootstrap_timings) if rank.bootstrap_timings else {}
    facts.timings_s = transports.seconds(rank.init_timings) if rank.init_timings else {}
    facts.links = transports.merge([*_links(rank, rank.links), *_links(rank, rank.late), *rank.collnet])
    return facts


def _links(rank: RankState, tails: Dict[bytes, int]) -> Iterator[Link]:
    seen = rank.process.seen_links
    return (transports.placed(seen[tail], count) for tail, count in tails.items())


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
    free = [index for index in candidates if rank.facts.rank not in states[index]]
    here = [
        index for index in free if next(reversed(states[index].values())).process.facts.host == rank.process.facts.host
    ]
    return (here or free or [None])[0]  # type: ignore[list-item]


def _fill(communicator: Communicator, ranks: List[RankState], memory: Dict[Alike, Spread]) -> None:
    communicator.ranks = [rank.facts for rank in ranks]
    seen = {rank.facts.rank for rank in ranks}
    communicator.missing = (
        [] if communicator.nranks > 1 << 20 else [number for number in range(communicator.nranks) if number not in seen]
    )
    communicator.stages = _folded([(rank.facts.stage, rank.facts.rank) for rank in ranks])
    communicator.stages = {stage: communicator.stages[stage] for stage in STAGES if stage in communicator.stages}
    orders = [rank.rings for rank in ranks if rank.rings]
    communicator.rings = transports.rings(orders[0], communicator.nranks) if orders else []
    _count_transports(communicator)
    communicator.spread = spread(ranks, memory)


def _folded(pairs: List[Tuple[str, int]]) -> Dict[str, str]:
    values: Dict[str, List[int]] = {}
    for value, rank in pairs:
        values.setdefault(value, []).append(rank)
    return {value: nodeset.ranks(ranks) for value, ranks in sorted(values.items(), key=lambda item: -len(item[1]))}


def _count_transports(communicator: Communicator) -> None:
    node = {rank.rank: rank.node for rank in communicator.ranks}
    nvls = sum(rank.nvls_used for rank in communicator.ranks)
    if nvls:
        communicator.transports["NVLS"] = nvls
    for rank in communicator.ranks:
        for link in rank.links:
            name = transports.name(link)
            communicator.transports[name] = communicator.transports.get(name, 0) + 1
            if node.get(link.peer) and rank.node and node[link.peer] != rank.node:
                communicator.between_nodes[name] = communicator.between_nodes.get(name, 0) + 1


def spread(ranks: List[RankState], memory: Dict[Alike, Spread]) -> Spread:
    """What the ranks said about themselves, value -> folded ranks, the most common value first. Settings stand under their own name.

    `memory`: of the same profiles on the same ranks the result is known, as for the many equal groups of a big job.
    """
    alike: Dict[Profile, List[int]] = {}
    for rank in ranks:
        alike.setdefault(rank.process.profile, []).append(rank.facts.rank)
        alike.setdefault(_rank_profile(rank.facts), []).append(rank.facts.rank)
    key = tuple((profile, tuple(numbers)) for profile, numbers in alike.items())
    if key not in memory:
        values: Dict[str, List[Tuple[str, int]]] = {}
        for profile, numbers in alike.items():
            for name, value in profile:
                values.setdefault(name, []).extend((value, number) for number in numbers)
        memory[key] = {
            name: _folded(values[name]) for name in sorted(values, key=lambda name: (name.startswith("NCCL_"), name))
        }
    return {name: dict(found) for name, found in memory[key].items()}


def process_profile(process: Process) -> Profile:
    """What a process said about itself, name and value, settings (at most 500) last."""
    devices = process.net_devices
    said = {
        "version": process.version,
        "git": process.git,
        "cuda_driver": str(process.cuda_driver) if process.cuda_driver else None,
        "bootstrap_interface": process.bootstrap_interface,
        "bootstrap_network": _subnet(process.bootstrap_address),
        "network": process.network,
        "net_devices": " ".join(_device(device) for device in devices) or None,
        "net_device_count": str(len(devices)) if devices else None,
        "oob_interface": process.oob_interface,
        **{name: process.settings[name] for name in sorted(process.settings)[:500]},
    }
    return tuple((name, value) for name, value in said.items() if value is not None)


def _rank_profile(rank: Rank) -> Profile:
    nvls = None if rank.nvls is None else ("available" if rank.nvls else "not available")
    numbers = (
        rank.local_ranks,
        rank.n_nodes,
        rank.coll_channels,
        rank.net_device_count,
        None if rank.ring_gdr is None else int(rank.ring_gdr),
    )
    names = ("local_ranks", "n_nodes", "coll_channels", "local_net_devices", "ring_gdr")
    found = [(name, str(number)) for name, number in zip(names, numbers) if number is not None]
    return tuple([*found, ("nvls", nvls)] if nvls else found)


def _device(device: NetDevice) -> str:
    return (
        device.name
        + (f":{device.port}" if device.port is not None else "")
        + (f"/{device.link}" if device.link else "")
    )


def _subnet(address: Optional[str]) -> Optional[str]:
    """The first three numbers of an IPv4 address, or the first four groups of an IPv6 one: enough to see who is elsewhere."""
    if not address:
        return None
    if "." in address and ":" not in address:
        return address.rpartition(".")[0] + ".*"
    return ":".join(address.split("%")[0].split(":")[:4]) + ":*"
