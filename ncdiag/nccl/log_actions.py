"""What the normal lines of NCCL change in what the parser keeps: one function a kind of line, run as `function(thread, at, *arguments)`."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from . import comm_lines
from . import log_state as state
from .comm_lines import Said
from .log_facts import NetDevice
from .log_state import RankState, Thread, line
from .transports import At, collnet

SETTINGS_LIMIT = 1000  # NCCL knows about 400
RANKS_LIMIT = 4096  # communicators kept of one process

Action = Tuple[Callable[..., None], Tuple[Any, ...]]


def nothing(thread: Thread, at: At) -> None:
    """A line that says nothing kept."""


def setting(thread: Thread, at: At, name: str, value: str) -> None:
    process = thread.process
    if len(process.facts.settings) >= SETTINGS_LIMIT:
        return
    process.facts.settings[name] = value
    process.note(name, at)
    process.mark(state.LOADED, at)


def driver(thread: Thread, at: At, version: int) -> None:
    thread.process.facts.cuda_driver = version
    thread.process.mark(state.LOADED, at)


def version(thread: Thread, at: At, number: str, cuda: Optional[str]) -> None:
    process = thread.process
    process.facts.version, process.facts.version_own = number, True
    process.facts.cuda = cuda or process.facts.cuda
    process.note("version", at)
    process.mark(state.INTERFACE, at)


def git(thread: Thread, at: At, text: str) -> None:
    thread.process.facts.git = text


def bootstrap(thread: Thread, at: At, interface: str, address: str, blank: bool) -> None:
    process = thread.process
    process.facts.bootstrap_interface, process.facts.bootstrap_address = interface, address
    process.bootstrap_blank = blank
    process.note("bootstrap", at)
    process.mark(state.INTERFACE, at)


def network(thread: Thread, at: At, name: str) -> None:
    thread.process.facts.network = name
    thread.process.chosen += 1
    thread.process.note("network", at)
    thread.process.mark(state.CHOSEN, at)


def devices(
    thread: Thread, at: At, devices: Tuple[Tuple[Any, ...], ...], ordering: Optional[bool], oob: Tuple[str, ...]
) -> None:
    process = thread.process
    process.facts.net_devices = [NetDevice(*device) for device in devices]
    if ordering is not None:
        process.facts.relaxed_ordering = ordering
    if oob:
        process.facts.oob_interface, process.facts.oob_address = oob
    process.note("net_devices", at)
    process.mark(state.NETWORK, at)


def net_step(thread: Thread, at: At, name: str, value: str) -> None:
    """A plugin loaded, a transport initialised or refused."""
    process = thread.process
    if value not in getattr(process.facts, name):
        getattr(process.facts, name).append(value)
    process.note(name, at)
    process.mark(state.NETWORK, at)


def no_ib(thread: Thread, at: At) -> None:
    thread.process.facts.ib_no_device = True
    thread.process.note("ib_no_device", at)
    thread.process.mark(state.NETWORK, at)


def dmabuf(thread: Thread, at: At, device: int) -> None:
    if device not in thread.process.facts.dmabuf:
        thread.process.facts.dmabuf.append(device)
    thread.process.mark(state.CHOSEN, at)


def hca_gdr(thread: Thread, at: At, device: int, name: str, enabled: bool) -> None:
    process = thread.process
    for known in process.facts.net_devices:
        if known.index == device:
            known.gdr = enabled
            break
    else:
        process.facts.net_devices.append(NetDevice(device, name, gdr=enabled))
    process.note("gdr_enabled" if enabled else "gdr_disabled", at)


def gpu_gdr(thread: Thread, at: At, enabled: bool, hca: str, distance: int, limit: int) -> None:
    process = thread.process
    key = "enabled" if enabled else "disabled"
    process.facts.gdr_for_gpu[key] = process.facts.gdr_for_gpu.get(key, 0) + 1
    process.note("gpu_gdr_" + key, at)
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
        thread.process.note("gid_index", at)


def comm(thread: Thread, at: At, said: Said) -> None:
    """Init START, Init COMPLETE, Destroy …: the lines that name a communicator."""
    process, pointer = thread.process, said.pointer
    rank = process.by_pointer.get(pointer)
    if rank is None or not _same(rank, said):
        if len(process.ranks) >= RANKS_LIMIT:
            return
        rank = process.by_pointer[pointer] = RankState(process, said.rank, said.nranks)
        process.ranks.append(rank)
        process.by_text[comm_lines.identity(at[2])] = rank
    facts = rank.facts
    facts.pointer, facts.cuda_dev, facts.bus_id = pointer, said.cuda_dev, said.bus_id
    facts.nvml_dev = said.nvml_dev if said.nvml_dev is not None else facts.nvml_dev
    rank.comm_id = said.comm_id or rank.comm_id
    rank.parent, rank.color = said.parent or rank.parent, said.color if said.color is not None else rank.color
    rank.call = said.call or rank.call
    if said.what == "Init START":
        rank.mark(state.START, at)
    elif said.what == "Init COMPLETE":
        rank.complete = True
        rank.mark(state.COMPLETE, at)
    elif said.what.endswith("COMPLETE"):
        rank.mark(state.DESTROYED, at)
    thread.begin(rank)


def complete(thread: Thread, at: At, message: bytes) -> None:
    """Init COMPLETE repeats the text of Init START, so that text is looked up before it is read."""
    rank = thread.process.by_text.get(comm_lines.identity(message))
    if rank is not None and not rank.complete:
        rank.complete = True
        rank.mark(state.COMPLETE, at)
        thread.begin(rank)
        return
    said = comm_lines.read(message)
    if said:
        comm(thread, at, said)


def _same(rank: RankState, said: Said) -> bool:
    """Whether that pointer still is the communicator it was: memory is used again after a destroy."""
    if rank.facts.rank != said.rank or rank.nranks != said.nranks:
        return False
    if said.comm_id and rank.comm_id:
        return bool(said.comm_id == rank.comm_id)
    return not (said.what == "Init START" and rank.seen >= state.DESTROYED)


def nodes(thread: Thread, at: At, pointer: str, numbers: Tuple[int, ...], mnnvl: Optional[bool]) -> None:
    rank_number, nranks, n_nodes, local_ranks, local_rank = numbers
    process = thread.process
    rank = process.by_pointer.get(pointer)
    if rank is None or rank.facts.rank != rank_number:
        if len(process.ranks) >= RANKS_LIMIT:
            return
        rank = process.by_pointer[pointer] = RankState(process, rank_number, nranks)
        rank.facts.pointer = pointer
        process.ranks.append(rank)
    facts = rank.facts
    facts.n_nodes, facts.local_ranks, facts.local_rank, facts.mnnvl = n_nodes, local_ranks, local_rank, mnnvl
    rank.mark(state.EXCHANGED, at)
    thread.begin(rank)


def mark(thread: Thread, at: At, seen: int) -> None:
    rank = thread.current()
    if rank is not None:
        rank.mark(seen, at)


def nvls(thread: Thread, at: At, available: bool) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.nvls = available
        rank.mark(state.TOPOLOGY, at)


def nvls_used(thread: Thread, at: At) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.nvls_used = True


def ras(thread: Thread, at: At, address: str) -> None:
    thread.process.facts.ras_address = address


def tree(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.tree = text[:8192]
        rank.mark(state.CONNECTING, at)


def connected(thread: Thread, at: At, pxn: Optional[bool], gdr: Optional[bool], nvls: bool) -> None:
    rank = thread.current()
    if rank is None:
        return
    rank.facts.connected = True
    rank.connected_late = rank.connected_late or rank.complete
    rank.facts.nvls_used = rank.facts.nvls_used or nvls
    if gdr is not None:
        rank.facts.ring_pxn, rank.facts.ring_gdr = pxn, gdr
    rank.mark(state.CONNECTED, at)


def counts(thread: Thread, at: At, coll: int, nvls: Optional[int], p2p: int) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.coll_channels, rank.facts.nvls_channels, rank.facts.p2p_channels = coll, nvls, p2p
        rank.mark(state.TUNED, at)


def bootstrapped(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.bootstrap_timings = text[:500]
        rank.mark(state.MET, at)


def timed(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.init_timings = text[:500]
        rank.complete = True
        rank.mark(state.COMPLETE, at)


def net_count(thread: Thread, at: At, who: int, count: int) -> None:
    rank = thread.current()
    if rank is not None and rank.facts.rank == who:
        rank.facts.net_device_count = count


def operation(thread: Thread, at: At, name: str, count: int, pointer: str) -> None:
    rank = thread.process.by_pointer.get(pointer)
    if rank is not None:
        rank.facts.op_count, rank.facts.last_op = count, name


def collective_network(thread: Thread, at: At, rest: bytes) -> None:
    rank, found = thread.current(), collnet(rest, line(at))
    if rank is not None and found is not None and len(rank.collnet) < 256:
        rank.collnet.append(found)


ONCE = frozenset(
    (comm, complete, nodes, tree, bootstrapped, timed, operation, collective_network)
)  # messages not worth remembering: each is said once
