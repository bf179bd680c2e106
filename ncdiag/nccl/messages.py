"""The normal lines of NCCL, besides `Channel`: what each one says.

`interpret(message)` looks at the message alone and answers with an action `(function, arguments)`, so that equal messages of many ranks are
read once. The action is run as `function(thread, at, *arguments)`.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import log_state as state
from .log_facts import NetDevice
from .log_state import RankState, Thread, line
from .transports import At, collnet

SETTINGS_LIMIT = 1000  # NCCL knows about 400
RANKS_LIMIT = 4096  # communicators kept of one process

Action = Tuple[Callable[..., None], Tuple[Any, ...]]

_COMM = re.compile(
    rb"(?:\[Rank \d+\] )?(?:(?P<call>\w{1,60}) )?comm (?P<pointer>0x[0-9a-f]+|\(nil\)) rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9}) "
    rb"cudaDev (?P<cuda>-?\d{1,5})(?: nvmlDev (?P<nvml>-?\d{1,5}))? busId (?P<bus>[0-9a-f]{1,16})(?P<rest>[^-\n]{0,300}(?:-\d[^-\n]{0,100})*)- "
    rb"(?P<what>Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE|Abort START|Destroy START|Revoke \w+)"
)
_COMM_REST = re.compile(rb"(commId|parent|color) (0x[0-9a-f]+|-?\d+)")
_NODES = re.compile(
    rb"comm (0x[0-9a-f]+) rank (\d{1,9}) nRanks (\d{1,9}) nNodes (\d{1,9}) localRanks (\d{1,6}) localRank (\d{1,6})(?: MNNVL (\d))?"
)
_SETTING = re.compile(rb"(NCCL_\w{1,80})(?: set by environment)? (?:set )?to (.{0,1000}?)\.?$")
_ADDRESS = re.compile(rb"(?:\[\d{1,4}\] ?)?([^\s:\[\]<>,;]{1,40}):(\S{1,80})<\d{0,5}>")
_IB_DEVICE = re.compile(rb"\[(\d{1,4})\] ?([^\s:\[\]{}=,]{1,80}):(\d{1,4})(?::[\d:]{0,20})?/(IB|RoCE)")
_SOCKET_DEVICE = re.compile(rb"\[(\d{1,4})\]([^\s:\[\]<>]{1,40}):(\S{1,80}?)<\d{0,5}>")
_IB_SPEED = re.compile(rb"NET/IB: \[(\d{1,4})\] (\S{1,80}?):\S{1,100} provider=\S{1,40} speed=(\d{1,9})")
_HCA_GDR = re.compile(rb"NET/(.{1,60}?) : GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '([^']{0,80})'")
_GPU_GDR = re.compile(rb"GPU Direct RDMA (Enabled|Disabled) for GPU.{0,200}?(?:HCA |NET/)(\S{1,30}).{0,200}?distance (\d{1,3}) [<>]=? (\d{1,3})")
_CONNECTED = re.compile(rb"Connected all (?:rings(?:, use ring PXN (\d) GDR (\d))?|trees)|Connected NVLS tree|Connected binomial trees")
_COUNTS = re.compile(rb"(\d{1,4}) coll channels, (?:\d{1,4} collnet channels, )?(?:(\d{1,4}) nvls channels, )?(\d{1,4}) p2p channels")
_NVLS_USED = re.compile(rb"NVLS comm 0x[0-9a-f]+ headRank")
_VIRTUAL = re.compile(rb"NET/IB : Made virtual device \[(\d{1,4})\] name=(\S{1,120})")
_PLUGIN_NAME = re.compile(rb"NET/Plugin ?: Plugin name set by env to (\S{1,200})")
_RAS = re.compile(rb"RAS client listening socket at (\S{1,80})<(\d{1,5})>")
_NVLS = re.compile(rb"NVLS multicast support is (not )?available")
_QP = re.compile(rb"NET/IB ?: .{0,200}?\bqp(?:n|_num) \d{1,10} mtu (\d)(?:.{0,200}? GID (-?\d{1,5}) \()?")
_OP = re.compile(rb"(\w{1,40}): opCount ([0-9a-f]{1,16}) .{0,300}? comm (0x[0-9a-f]{1,16})")
VERSION = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?:\+cuda(\d{1,3}\.\d{1,3}))?")
_LOADED_PLUGIN = re.compile(rb"NET/Plugin ?: Loaded net plugin (.{1,80}?)\s*$")
_OTHER_PLUGIN = re.compile(rb"Successfully loaded external (?:network )?plugin (.{1,200}?)\s*$")
_NET_PLUGIN = re.compile(rb"(Initialized|Failed to initialize) NET plugin (.{1,80}?)\s*$")


class Said(NamedTuple):
    """A line that names a communicator."""

    call: Optional[str]
    pointer: str
    rank: int
    nranks: int
    cuda_dev: int
    nvml_dev: Optional[int]
    bus_id: str
    comm_id: Optional[str]
    parent: Optional[str]
    color: Optional[int]
    what: str  # Init START, Init COMPLETE, Destroy COMPLETE …


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def nothing(thread: Thread, at: At) -> None:
    """A line that says nothing kept."""


def _setting(thread: Thread, at: At, name: str, value: str) -> None:
    process = thread.process
    if len(process.facts.settings) >= SETTINGS_LIMIT:
        return
    process.facts.settings[name] = value
    process.note(name, at)
    process.mark(state.LOADED, at)


def _driver(thread: Thread, at: At, version: int) -> None:
    thread.process.facts.cuda_driver = version
    thread.process.mark(state.LOADED, at)


def version(thread: Thread, at: At, number: str, cuda: Optional[str]) -> None:
    process = thread.process
    process.facts.version, process.facts.version_own = number, True
    process.facts.cuda = cuda or process.facts.cuda
    process.note("version", at)
    process.mark(state.INTERFACE, at)


def _git(thread: Thread, at: At, text: str) -> None:
    thread.process.facts.git = text


def _bootstrap(thread: Thread, at: At, interface: str, address: str, blank: bool) -> None:
    process = thread.process
    process.facts.bootstrap_interface, process.facts.bootstrap_address = interface, address
    process.bootstrap_blank = blank
    process.note("bootstrap", at)
    process.mark(state.INTERFACE, at)


def _network(thread: Thread, at: At, name: str) -> None:
    thread.process.facts.network = name
    thread.process.chosen += 1
    thread.process.note("network", at)
    thread.process.mark(state.CHOSEN, at)


def _devices(thread: Thread, at: At, devices: Tuple[Tuple[Any, ...], ...], ordering: Optional[bool], oob: Tuple[str, ...]) -> None:
    process = thread.process
    process.facts.net_devices = [NetDevice(*device) for device in devices]
    if ordering is not None:
        process.facts.relaxed_ordering = ordering
    if oob:
        process.facts.oob_interface, process.facts.oob_address = oob
    process.note("net_devices", at)
    process.mark(state.NETWORK, at)


def _net_step(thread: Thread, at: At, name: str, value: str) -> None:
    """A plugin loaded, a transport initialised or refused."""
    process = thread.process
    if value not in getattr(process.facts, name):
        getattr(process.facts, name).append(value)
    process.note(name, at)
    process.mark(state.NETWORK, at)


def _no_ib(thread: Thread, at: At) -> None:
    thread.process.facts.ib_no_device = True
    thread.process.note("ib_no_device", at)
    thread.process.mark(state.NETWORK, at)


def _dmabuf(thread: Thread, at: At, device: int) -> None:
    if device not in thread.process.facts.dmabuf:
        thread.process.facts.dmabuf.append(device)
    thread.process.mark(state.CHOSEN, at)


def _hca_gdr(thread: Thread, at: At, device: int, name: str, enabled: bool) -> None:
    process = thread.process
    for known in process.facts.net_devices:
        if known.index == device:
            known.gdr = enabled
            break
    else:
        process.facts.net_devices.append(NetDevice(device, name, gdr=enabled))
    process.note("gdr_enabled" if enabled else "gdr_disabled", at)


def _gpu_gdr(thread: Thread, at: At, enabled: bool, hca: str, distance: int, limit: int) -> None:
    process = thread.process
    key = "enabled" if enabled else "disabled"
    process.facts.gdr_for_gpu[key] = process.facts.gdr_for_gpu.get(key, 0) + 1
    process.note("gpu_gdr_" + key, at)
    entry = {"hca": hca, "distance": distance, "limit": limit}
    if not enabled and entry not in process.facts.gdr_distances and len(process.facts.gdr_distances) < 64:
        process.facts.gdr_distances.append(entry)


def _speed(thread: Thread, at: At, device: int, mbits_s: int) -> None:
    for known in thread.process.facts.net_devices:
        if known.index == device:
            known.speed_mbits_s = mbits_s


def _qp(thread: Thread, at: At, mtu: int, gid_index: Optional[int]) -> None:
    facts = thread.process.facts
    if 1 <= mtu <= 5 and 128 << mtu not in facts.qp_mtus:
        facts.qp_mtus.append(128 << mtu)
    if gid_index is not None and gid_index not in facts.gid_indexes and len(facts.gid_indexes) < 64:
        facts.gid_indexes.append(gid_index)
        thread.process.note("gid_index", at)


def _comm(thread: Thread, at: At, said: Said) -> None:
    """Init START, Init COMPLETE, Destroy …: the lines that name a communicator."""
    process, pointer = thread.process, said.pointer
    rank = process.by_pointer.get(pointer)
    if rank is None or not _same(rank, said):
        if len(process.ranks) >= RANKS_LIMIT:
            return
        rank = process.by_pointer[pointer] = RankState(process, said.rank, said.nranks)
        process.ranks.append(rank)
        process.by_text[_identity(at[2])] = rank
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


def _complete(thread: Thread, at: At, message: bytes) -> None:
    """Init COMPLETE repeats the text of Init START, so that text is looked up before it is read."""
    rank = thread.process.by_text.get(_identity(message))
    if rank is not None and not rank.complete:
        rank.complete = True
        rank.mark(state.COMPLETE, at)
        thread.begin(rank)
        return
    match = _COMM.match(message)
    if match:
        _comm(thread, at, _said(match))


def _identity(message: bytes) -> bytes:
    return message[message.find(b"comm 0x") : message.rfind(b"- Init ")].rstrip()


def _same(rank: RankState, said: Said) -> bool:
    """Whether that pointer still is the communicator it was: memory is used again after a destroy."""
    if rank.facts.rank != said.rank or rank.nranks != said.nranks:
        return False
    if said.comm_id and rank.comm_id:
        return bool(said.comm_id == rank.comm_id)
    return not (said.what == "Init START" and rank.seen >= state.DESTROYED)


def _nodes(thread: Thread, at: At, pointer: str, numbers: Tuple[int, ...], mnnvl: Optional[bool]) -> None:
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


def _mark(thread: Thread, at: At, seen: int) -> None:
    rank = thread.current()
    if rank is not None:
        rank.mark(seen, at)


def _nvls(thread: Thread, at: At, available: bool) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.nvls = available
        rank.mark(state.TOPOLOGY, at)


def _nvls_used(thread: Thread, at: At) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.nvls_used = True


def _ras(thread: Thread, at: At, address: str) -> None:
    thread.process.facts.ras_address = address


def _tree(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.tree = text[:8192]
        rank.mark(state.CONNECTING, at)


def _connected(thread: Thread, at: At, pxn: Optional[bool], gdr: Optional[bool], nvls: bool) -> None:
    rank = thread.current()
    if rank is None:
        return
    rank.facts.connected = True
    rank.connected_late = rank.connected_late or rank.complete
    rank.facts.nvls_used = rank.facts.nvls_used or nvls
    if gdr is not None:
        rank.facts.ring_pxn, rank.facts.ring_gdr = pxn, gdr
    rank.mark(state.CONNECTED, at)


def _counts(thread: Thread, at: At, coll: int, nvls: Optional[int], p2p: int) -> None:
    rank = thread.current()
    if rank is not None:
        rank.facts.coll_channels, rank.facts.nvls_channels, rank.facts.p2p_channels = coll, nvls, p2p
        rank.mark(state.TUNED, at)


def _bootstrapped(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.bootstrap_timings = text[:500]
        rank.mark(state.MET, at)


def _timed(thread: Thread, at: At, text: bytes) -> None:
    rank = thread.current()
    if rank is not None:
        rank.init_timings = text[:500]
        rank.complete = True
        rank.mark(state.COMPLETE, at)


def _net_count(thread: Thread, at: At, who: int, count: int) -> None:
    rank = thread.current()
    if rank is not None and rank.facts.rank == who:
        rank.facts.net_device_count = count


def _operation(thread: Thread, at: At, name: str, count: int, pointer: str) -> None:
    rank = thread.process.by_pointer.get(pointer)
    if rank is not None:
        rank.facts.op_count, rank.facts.last_op = count, name


def _collnet(thread: Thread, at: At, rest: bytes) -> None:
    rank, found = thread.current(), collnet(rest, line(at))
    if rank is not None and found is not None and len(rank.collnet) < 256:
        rank.collnet.append(found)


ONCE = frozenset((_comm, _complete, _nodes, _tree, _bootstrapped, _timed, _operation, _collnet))  # messages not worth remembering: each is said once


# Beginnings of lines that come in great number (subsystems GRAPH, TUNING, ALLOC …) and say nothing kept.
NOISE = frozenset((b"Ring ", b"Tree ", b"CPU/0", b"CPU/1", b"GPU/0", b"GPU/1", b"GPU/2", b"+ PCI", b"+ NVL", b"+ NET", b"+ SYS", b"+ GPU", b"+ C2C", b"     "))


# --- reading a message ---------------------------------------------------------------------------------------------------------------------


def interpret(message: bytes) -> Optional[Action]:
    """The action for a message; None when the table of errors is to be asked."""
    if b"omm 0x" in message[:160] and not message.startswith(b"NVLS"):
        return _read_comm(message)
    for reader in _READERS.get(message[:4], ()):
        action = reader(message)
        if action:
            return action
    return _read_counts(message) if b" coll channels, " in message else None


def _read_comm(message: bytes) -> Optional[Action]:
    if message.endswith(b"- Init COMPLETE"):
        return _complete, (message,)
    match = _NODES.match(message) if b" nNodes " in message else None
    if match:
        return _nodes, (_text(match[1]), tuple(int(x) for x in match.groups()[1:6]), match[7] == b"1" if match[7] else None)
    match = _COMM.match(message)
    if match:
        return _comm, (_said(match),)
    match = _OP.match(message)
    if match:
        return _operation, (_text(match[1]), int(match[2], 16), _text(match[3]))
    return None


def _said(match: re.Match[bytes]) -> Said:
    call, pointer, rank, nranks, cuda, nvml, bus, rest, what = match.groups()
    more = dict(_COMM_REST.findall(rest))
    comm_id, parent, color = more.get(b"commId"), more.get(b"parent"), more.get(b"color")
    return Said(
        _text(call) if call else None, _text(pointer), int(rank), int(nranks), int(cuda), int(nvml) if nvml else None, _text(bus),
        _text(comm_id) if comm_id else None, _text(parent) if parent else None, int(color, 0) if color else None, _text(what),
    )  # fmt: skip


def _read_setting(message: bytes) -> Optional[Action]:
    match = VERSION.match(message)
    if match:
        return version, (_text(match[1]), _text(match[2]) if match[2] else None)
    if message.startswith(b"NCCL git version "):
        return _git, (_text(message[17:80]).strip(),)
    match = _SETTING.match(message)
    return (_setting, (_text(match[1]), _text(match[2]).strip())) if match else None


def _read_bootstrap(message: bytes) -> Optional[Action]:
    if message.startswith(b"Bootstrap timings total "):
        return (_bootstrapped, (message[18:],)) if message.rstrip().endswith(b")") else None
    head, using, rest = message.partition(b": Using")
    match = _ADDRESS.search(rest[:400]) if using else None
    if match:
        return _bootstrap, (_text(match[1]), _text(match[2]), head.endswith(b" "))
    return None


def _read_net(message: bytes) -> Optional[Action]:
    if message.startswith((b"NET/IB : Using", b"NET/Socket : Using")):
        return _read_devices(message)
    if message.startswith(b"NET/IB : No device found"):
        return _no_ib, ()
    match = _HCA_GDR.match(message)
    if match:
        return _hca_gdr, (int(match[3]), _text(match[4]), match[2] == b"Enabled")
    match = _LOADED_PLUGIN.match(message)
    if match:
        return _net_step, ("net_plugins", _text(match[1]))
    match = _VIRTUAL.match(message)
    if match:
        return _net_step, ("virtual_devices", f"{_text(match[1])}:{_text(match[2])}")
    match = _PLUGIN_NAME.match(message)
    if match:
        return _setting, ("NCCL_NET_PLUGIN", _text(match[1]))
    match = _IB_SPEED.match(message)
    if match:
        return _speed, (int(match[1]), int(match[3]))
    match = _QP.match(message)
    if match:
        return _qp, (int(match[1]), int(match[2]) if match[2] else None)
    return None


def _read_devices(message: bytes) -> Action:
    if message.startswith(b"NET/Socket"):
        sockets = tuple((int(i), _text(name), None, None, _text(address)) for i, name, address in _SOCKET_DEVICE.findall(message))
        return _devices, (sockets, None, ())
    ports = tuple((int(i), _text(name), int(port), _text(link)) for i, name, port, link in _IB_DEVICE.findall(message))
    _, _, oob = message.partition(b"; OOB ")
    match = _ADDRESS.match(oob)
    return _devices, (ports, b" [RO]" in message if oob else None, (_text(match[1]), _text(match[2])) if match else ())


def _read_plugin(message: bytes) -> Optional[Action]:
    match = _NET_PLUGIN.match(message)
    if match:
        return _net_step, ("initialized" if match[1] == b"Initialized" else "failed", _text(match[2]))
    match = _OTHER_PLUGIN.match(message)
    return (_net_step, ("net_plugins", _text(match[1]))) if match else None


def _read_timings(message: bytes) -> Optional[Action]:
    if message.startswith((b"Init timings:", b"Init timings - ")) and message.rstrip().endswith(b")"):
        return _timed, (message[12:],)
    return None


def _read_connected(message: bytes) -> Optional[Action]:
    match = _CONNECTED.match(message)
    if not match:
        return None
    pxn, gdr = (flag == b"1" if flag else None for flag in match.groups())
    return _connected, (pxn, gdr, b"NVLS" in match[0])


def _read_gpu_gdr(message: bytes) -> Optional[Action]:
    match = _GPU_GDR.match(message)
    return (_gpu_gdr, (match[1] == b"Enabled", _text(match[2]), int(match[3]), int(match[4]))) if match else None


def _after(prefix: bytes, function: Callable[..., None], convert: Callable[[bytes], Any]) -> Callable[[bytes], Optional[Action]]:
    """A reader for messages of a prefix and one value."""

    def read(message: bytes) -> Optional[Action]:
        if not message.startswith(prefix):
            return None
        try:
            return function, (convert(message[len(prefix) :]),)
        except ValueError:
            return None

    return read


def _marks(prefix: bytes, seen: int) -> Callable[[bytes], Optional[Action]]:
    return lambda message: (_mark, (seen,)) if message.startswith(prefix) else None


def _read_counts(message: bytes) -> Optional[Action]:
    match = _COUNTS.match(message)
    if not match:
        return None
    return _counts, (int(match[1]), int(match[2]) if match[2] else None, int(match[3]))


def _read_ras(message: bytes) -> Optional[Action]:
    match = _RAS.match(message)
    return (_ras, (f"{_text(match[1])}:{_text(match[2])}",)) if match else None


def _read_nvls(message: bytes) -> Optional[Action]:
    if _NVLS_USED.match(message):
        return _nvls_used, ()
    match = _NVLS.match(message)
    return (_nvls, (not match[1],)) if match else None


_NET_COUNT = re.compile(rb"Rank (\d{1,9}): (\d{1,4}) Net devices")


def _read_net_count(message: bytes) -> Optional[Action]:
    match = _NET_COUNT.match(message)
    return (_net_count, (int(match[1]), int(match[2]))) if match else None


_Reader = Callable[[bytes], Optional[Action]]
_READERS: Dict[bytes, List[_Reader]] = {
    b"NCCL": [_read_setting],
    b"cuda": [_after(b"cudaDriverVersion ", _driver, int)],
    b"Boot": [_read_bootstrap],
    b"NET/": [_read_net],
    b"Usin": [_after(b"Using network ", _network, lambda raw: _text(raw[:80]).strip())],
    b"Init": [_read_plugin, _read_timings],
    b"Fail": [_read_plugin],
    b"Succ": [_read_plugin],
    b"DMA-": [_after(b"DMA-BUF is available on GPU device ", _dmabuf, int)],
    b"GPU ": [_read_gpu_gdr],
    b"Conn": [_read_connected],
    b"RAS ": [_read_ras],
    b"Tree": [_after(b"Trees ", _tree, bytes)],
    b"P2P ": [_marks(b"P2P Chunksize", state.CONNECTING)],
    b"Sett": [_marks(b"Setting affinity", state.TOPOLOGY)],
    b"nccl": [_marks(b"ncclTopoGetCpuAffinity", state.TOPOLOGY)],
    b"=== ": [_marks(b"=== System", state.TOPOLOGY)],
    b"NVLS": [_read_nvls],
    b"Patt": [_marks(b"Pattern ", state.GRAPH)],
    b"Chec": [_marks(b"Check P2P Type", state.EXCHANGED)],
    b"[Pro": [_marks(b"[Proxy ", state.EXCHANGED)],
    b"thre": [_marks(b"threadThresholds", state.TUNED)],
    b"Rank": [_read_net_count],
    b"Coll": [_after(b"CollNet ", _collnet, bytes)],
}
