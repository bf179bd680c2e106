"""What the normal lines of NCCL change in what the parser keeps: one function a kind of line, run as `function(thread, at, *arguments)`."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple, Union

from . import log_state as state
from .log_facts import NetDevice
from .log_state import Devices, RankState, Thread
from .places import At
from .transports import collnet

SETTINGS_LIMIT = 1000  # NCCL knows about 400
RANKS_LIMIT = 4096  # communicators kept of one process

Mark = int  # how far the initialisation is, as in `log_state`; 0: the line says nothing kept
Deed = Tuple[Callable[..., Any], Tuple[Any, ...]]  # what else a line says: function(thread, at, *arguments)
Action = Union[Mark, Deed]


def setting(thread: Thread, at: At, name: str, value: str) -> None:
    process = thread.process
    settings = process.facts.settings
    if len(settings) >= SETTINGS_LIMIT:
        return
    settings[name] = value
    if name not in process.notes:
        process.notes[name] = at
    if process.seen < state.LOADED:
        process.seen = state.LOADED


def driver(thread: Thread, at: At, version: int) -> None:
    thread.process.facts.cuda_driver = version
    thread.process.mark(state.LOADED)


def version(thread: Thread, at: At, number: str, cuda: Optional[str]) -> None:
    process = thread.process
    process.facts.version, process.facts.version_own = number, True
    process.facts.cuda = cuda or process.facts.cuda
    process.notes.setdefault("version", at)
    process.mark(state.INTERFACE)


def git(thread: Thread, at: At, text: str) -> None:
    thread.process.facts.git = text


def bootstrap(thread: Thread, at: At, interface: str, address: str, blank: bool) -> None:
    process = thread.process
    process.facts.bootstrap_interface, process.facts.bootstrap_address = interface, address
    process.bootstrap_blank = blank
    process.notes.setdefault("bootstrap", at)
    process.mark(state.INTERFACE)


def network(thread: Thread, at: At, name: str) -> None:
    thread.process.facts.network = name
    thread.process.chosen += 1
    thread.process.notes.setdefault("network", at)
    thread.process.mark(state.CHOSEN)


def devices(thread: Thread, at: At, devices: Devices, ordering: Optional[bool], oob: Tuple[str, ...]) -> None:
    process = thread.process
    process.devices = devices
    process.facts.__dict__.pop("net_devices", None)  # those of an earlier line
    if ordering is not None:
        process.facts.relaxed_ordering = ordering
    if oob:
        process.facts.oob_interface, process.facts.oob_address = oob
    process.notes.setdefault("net_devices", at)
    process.mark(state.NETWORK)


def net_step(thread: Thread, at: At, name: str, value: str) -> None:
    """A plugin loaded, a transport initialised or refused."""
    process = thread.process
    if value not in getattr(process.facts, name):
        getattr(process.facts, name).append(value)
    process.notes.setdefault(name, at)
    process.mark(state.NETWORK)


def no_ib(thread: Thread, at: At) -> None:
    thread.process.facts.ib_no_device = True
    thread.process.notes.setdefault("ib_no_device", at)
    thread.process.mark(state.NETWORK)


def dmabuf(thread: Thread, at: At, device: int) -> None:
    if device not in thread.process.facts.dmabuf:
        thread.process.facts.dmabuf.append(device)
    thread.process.mark(state.CHOSEN)


def hca_gdr(thread: Thread, at: At, device: int, name: str, enabled: bool) -> None:
    process = thread.process
    for known in process.facts.net_devices:
        if known.index == device:
            known.gdr = enabled
            break
    else:
        process.facts.net_devices.append(NetDevice(device, name, gdr=enabled))
    process.notes.setdefault("gdr_enabled" if enabled else "gdr_disabled", at)


def gpu_gdr(thread: Thread, at: At, enabled: bool, hca: str, distance: int, limit: int) -> None:
    process = thread.process
    key = "enabled" if enabled else "disabled"
    process.facts.gdr_for_gpu[key] = process.facts.gdr_for_gpu.get(key, 0) + 1
    process.notes.setdefault("gpu_gdr_" + key, at)
    entry = {"hca": hca, "distance": distance, "limit": limit}
    if not enabled and entry not in process.facts.gdr_distances and len(process.facts.gdr_distances) < 64:
        process.facts.gdr_distances.append(entry)


def speed(thread: Thread, at: At, device: int, mbits_s: int) -> None:
    for known in thread.process.facts.net_devices:
        if known.index == device:
            known.speed_mbits_s = mbits_s


def qp(thread: Thread, at: At, mtu: int, gid_index: Optional[int]) -> None:
    facts = thread.process.facts
    if 1 <= mtu <= 5 and 128 << mtu not in facts.qp_mtus:
        facts.qp_mtus.append(128 << mtu)
    if gid_index is not None and gid_index not in facts.gid_indexes and len(facts.gid_indexes) < 64:
        facts.gid_indexes.append(gid_index)
        thread.process.notes.setdefault("gid_index", at)


def comm(
    thread: Thread, at: At, call: Optional[str], pointer: str, number: int, nranks: int, cuda_dev: int, nvml_dev: Optional[int],
    bus_id: Optional[str], comm_id: Optional[str], parent: Optional[str], color: Optional[int], what: str,
) -> Optional[RankState]:  # fmt: skip
    """Init START, Init COMPLETE, Destroy …: the lines that name a communicator. The rank, when it is new."""
    process = thread.process
    rank, new = process.by_pointer.get(pointer), None
    if rank is None or not _same(rank, number, nranks, comm_id, what):
        if len(process.ranks) >= RANKS_LIMIT:
            return None
        rank = new = process.by_pointer[pointer] = RankState(process, number, nranks)
        process.ranks.append(rank)
    facts = rank.facts
    facts.pointer, facts.cuda_dev, facts.bus_id = pointer, cuda_dev, bus_id
    facts.nvml_dev = nvml_dev if nvml_dev is not None else facts.nvml_dev
    rank.comm_id = comm_id or rank.comm_id
    rank.parent, rank.color = parent or rank.parent, color if color is not None else rank.color
    rank.call = call or rank.call
    if what == "Init START":
        rank.mark(state.START, at)
    elif what == "Init COMPLETE":
        rank.complete = True
        rank.mark(state.COMPLETE, at)
    elif what.endswith("COMPLETE"):
        rank.mark(state.DESTROYED, at)
    thread.begin(rank)
    return new


def _same(rank: RankState, number: int, nranks: int, comm_id: Optional[str], what: str) -> bool:
    """Whether that pointer still is the communicator it was: memory is used again after a destroy."""
    if rank.number != number or rank.nranks != nranks:
        return False
    if comm_id and rank.comm_id:
        return bool(comm_id == rank.comm_id)
    return not (what == "Init START" and rank.seen >= state.DESTROYED)


def nodes(thread: Thread, at: At, pointer: str, number: int, size: Tuple[Any, ...]) -> None:
    process, nranks = thread.process, size[0]
    rank = process.by_pointer.get(pointer)
    if rank is None or rank.number != number:
        if len(process.ranks) >= RANKS_LIMIT:
            return
        rank = process.by_pointer[pointer] = RankState(process, number, nranks)
        rank.facts.pointer = pointer
        process.ranks.append(rank)
    counted(thread, at, rank, size)


def counted(thread: Thread, at: At, rank: RankState, size: Tuple[Any, ...]) -> None:
    """`size`: ranks, nodes, ranks of its node, number among them, whether NVLink leaves the node."""
    facts = rank.facts
    _, facts.n_nodes, facts.local_ranks, facts.local_rank, facts.mnnvl = size
    rank.mark(state.EXCHANGED, at)
    thread.begin(rank)


def mark(thread: Thread, at: At, seen: int) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.mark(seen, at)


def nvls(thread: Thread, at: At, available: bool) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.facts.nvls = available
        rank.mark(state.TOPOLOGY, at)


def nvls_used(thread: Thread, at: At) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.facts.nvls_used = True


def ras(thread: Thread, at: At, address: str) -> None:
    thread.process.facts.ras_address = address


def tree(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.tree = text if len(text) < 8192 else text[:8192]
        rank.mark(state.CONNECTING, at)


def connected(thread: Thread, at: At, pxn: Optional[bool], gdr: Optional[bool], nvls: bool) -> None:
    rank = thread.rank or thread.current()
    if rank is None:
        return
    facts = rank.facts
    facts.connected = True
    if rank.complete:
        rank.connected_late = True
    if nvls:
        facts.nvls_used = True
    if gdr is not None:
        facts.ring_pxn, facts.ring_gdr = pxn, gdr
    rank.mark(state.CONNECTED, at)


def counts(thread: Thread, at: At, coll: int, nvls: Optional[int], p2p: int) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        facts = rank.facts
        facts.coll_channels, facts.nvls_channels, facts.p2p_channels = coll, nvls, p2p
        rank.mark(state.TUNED, at)


def bootstrapped(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.bootstrap_timings = text if len(text) < 600 else text[:600]
        rank.mark(state.MET, at)


def timed(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.rank or thread.current()
    if rank is not None:
        rank.init_timings = text if len(text) < 600 else text[:600]
        rank.complete = True
        rank.mark(state.COMPLETE, at)


def net_count(thread: Thread, at: At, who: int, count: int) -> None:
    rank = thread.rank or thread.current()
    if rank is not None and rank.number == who:
        rank.facts.net_device_count = count


def operation(thread: Thread, at: At, name: str, count: int, pointer: str) -> None:
    rank = thread.process.by_pointer.get(pointer)
    if rank is not None:
        rank.facts.op_count, rank.facts.last_op = count, name


def collective_network(thread: Thread, at: At, rest: bytes) -> None:
    rank, found = thread.current(), collnet(rest)
    if rank is not None and found is not None and len(rank.collnet) < 256:
        rank.collnet.append((found, at, 1))


ONCE = frozenset(
    (comm, nodes, tree, bootstrapped, timed, operation, collective_network)
)  # messages not worth remembering: each is said once
