"""From ranks to communicators: which ranks belong together, who is missing, how far each is, and who holds up the others."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import nodeset
from . import log_state as state
from . import transports
from .log_facts import STAGES, Communicator, Link, Process, Rank
from .log_state import ProcessState, RankState, line

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
_BEFORE = {0: "none", state.LOADED: "load", state.INTERFACE: "interface", state.NETWORK: "network", state.CHOSEN: "network"}


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
    facts.tree = transports.tree(rank.tree)
    found = [_link(rank, tail, count) for tails in (rank.links, rank.late) for tail, count in tails.items()]
    facts.links = transports.merge([one for one in found if one] + rank.collnet)
    return facts


def _link(rank: RankState, tail: bytes, count: int) -> Optional[Link]:
    return transports.link(tail, count, line(rank.links_at[tail])) if tail in rank.links_at else None


def group(processes: List[ProcessState]) -> List[Communicator]:
    """Ranks of all processes as communicators, in order of appearance. Sets RankState.facts.process beforehand expected."""
    keys: Dict[Tuple[Any, ...], List[int]] = {}  # what ranks of one communicator share -> its communicators, by repetition
    found: List[Communicator] = []
    states: List[List[RankState]] = []
    home: Dict[int, int] = {}  # id of a RankState -> communicator
    for process in processes:
        for rank in process.ranks:
            key = _key(rank, home)
            index = _place(rank, keys.setdefault(key, []), states)
            if index is None:
                index = len(found)
                found.append(Communicator(index, rank.nranks, rank.comm_id, rank.call, color=rank.color))
                states.append([])
                keys[key].append(index)
            states[index].append(rank)
            home[id(rank)] = index
            parent = _parent(rank)
            if parent is not None and found[index].parent is None:
                found[index].parent = home.get(id(parent))
    for communicator, ranks in zip(found, states):
        _fill(communicator, sorted(ranks, key=lambda rank: rank.facts.rank))
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


def _place(rank: RankState, candidates: List[int], states: List[List[RankState]]) -> Optional[int]:
    """The first communicator of this key that lacks the rank; one that has ranks of the same host is preferred."""
    free = [index for index in candidates if all(other.facts.rank != rank.facts.rank for other in states[index])]
    here = [index for index in free if states[index][-1].process.facts.host == rank.process.facts.host]
    return (here or free or [None])[0]  # type: ignore[list-item]


def _fill(communicator: Communicator, ranks: List[RankState]) -> None:
    communicator.ranks = [rank.facts for rank in ranks]
    seen = {rank.facts.rank for rank in ranks}
    communicator.missing = [] if communicator.nranks > 1 << 20 else [number for number in range(communicator.nranks) if number not in seen]
    communicator.stages = _folded([(rank.facts.stage, rank.facts.rank) for rank in ranks])
    communicator.stages = {stage: communicator.stages[stage] for stage in STAGES if stage in communicator.stages}
    orders = [rank.rings for rank in ranks if rank.rings]
    communicator.rings = transports.rings(orders[0], communicator.nranks) if orders else []
    _count_transports(communicator)
    communicator.spread = spread([(rank.facts, rank.process.facts) for rank in ranks])


def _folded(pairs: List[Tuple[str, int]]) -> Dict[str, str]:
    values: Dict[str, List[int]] = {}
    for value, rank in pairs:
        values.setdefault(value, []).append(rank)
    return {value: nodeset.ranks(ranks) for value, ranks in sorted(values.items(), key=lambda item: -len(item[1]))}


def _count_transports(communicator: Communicator) -> None:
    node = {rank.rank: rank.node for rank in communicator.ranks}
    for rank in communicator.ranks:
        for link in rank.links:
            name = transports.name(link)
            communicator.transports[name] = communicator.transports.get(name, 0) + 1
            if node.get(link.peer) and rank.node and node[link.peer] != rank.node:
                communicator.between_nodes[name] = communicator.between_nodes.get(name, 0) + 1


_SPREAD: Dict[str, Callable[[Rank, Process], Optional[str]]] = {
    "version": lambda rank, process: process.version,
    "git": lambda rank, process: process.git,
    "cuda_driver": lambda rank, process: str(process.cuda_driver) if process.cuda_driver else None,
    "bootstrap_interface": lambda rank, process: process.bootstrap_interface,
    "bootstrap_network": lambda rank, process: _subnet(process.bootstrap_address),
    "network": lambda rank, process: process.network,
    "net_devices": lambda rank, process: " ".join(_device(device) for device in process.net_devices) or None,
    "net_device_count": lambda rank, process: str(rank.net_device_count or len(process.net_devices) or "") or None,
    "oob_interface": lambda rank, process: process.oob_interface,
    "nvls": lambda rank, process: None if rank.nvls is None else ("available" if rank.nvls else "not available"),
    "local_ranks": lambda rank, process: str(rank.local_ranks) if rank.local_ranks else None,
    "n_nodes": lambda rank, process: str(rank.n_nodes) if rank.n_nodes else None,
    "coll_channels": lambda rank, process: str(rank.coll_channels) if rank.coll_channels is not None else None,
    "ring_gdr": lambda rank, process: None if rank.ring_gdr is None else str(int(rank.ring_gdr)),
}


def _device(device: Any) -> str:
    return device.name + (f":{device.port}" if device.port is not None else "") + (f"/{device.link}" if device.link else "")


def _subnet(address: Optional[str]) -> Optional[str]:
    """The first three numbers of an IPv4 address, or the first four groups of an IPv6 one: enough to see who is elsewhere."""
    if not address:
        return None
    if "." in address and ":" not in address:
        return address.rpartition(".")[0] + ".*"
    return ":".join(address.split("%")[0].split(":")[:4]) + ":*"


def spread(ranks: List[Tuple[Rank, Process]]) -> Dict[str, Dict[str, str]]:
    """What the ranks said about themselves, value -> folded ranks, the most common value first. Settings stand under their own name."""
    found: Dict[str, Dict[str, str]] = {}
    for name, read in _SPREAD.items():
        pairs = [(value, rank.rank) for rank, process in ranks for value in [read(rank, process)] if value is not None]
        if pairs:
            found[name] = _folded(pairs)
    settings = sorted({name for _, process in ranks for name in process.settings})
    for name in settings[:500]:
        found[name] = _folded([(process.settings[name], rank.rank) for rank, process in ranks if name in process.settings])
    return found
