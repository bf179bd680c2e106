"""The normal lines of NCCL, besides `Channel`: what each one says.

`interpret(message)` looks at the message alone and answers with an action `(function, arguments)` out of `log_actions`, so that equal messages
of many ranks are read once.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import comm_lines
from . import log_actions as do
from . import log_state as state
from .log_actions import Action

_NODES = re.compile(
    rb"comm (0x[0-9a-f]+) rank (\d{1,9}) nRanks (\d{1,9} nNodes \d{1,9} localRanks \d{1,6} localRank \d{1,6}(?: MNNVL \d)?)"
)
_SIZE = re.compile(rb"(\d{1,9}) nNodes (\d{1,9}) localRanks (\d{1,6}) localRank (\d{1,6})(?: MNNVL (\d))?")
_SETTING = re.compile(rb"(NCCL_\w{1,80})(?: set by environment)? (?:set )?to (.{0,1000}?)\.?$")
_ADDRESS = re.compile(rb"(?:\[\d{1,4}\] ?)?([^\s:\[\]<>,;]{1,40}):(\S{1,80})<\d{0,5}>")
_IB_DEVICE = re.compile(rb"\[(\d{1,4})\] ?([^\s:\[\]{}=,]{1,80}):(\d{1,4})(?::[\d:]{0,20})?/(IB|RoCE)")
_SOCKET_DEVICE = re.compile(rb"\[(\d{1,4})\]([^\s:\[\]<>]{1,40}):(\S{1,80}?)<\d{0,5}>")
_IB_SPEED = re.compile(rb"NET/IB: \[(\d{1,4})\] (\S{1,80}?):\S{1,100} provider=\S{1,40} speed=(\d{1,9})")
_HCA_GDR = re.compile(rb"NET/(.{1,60}?) : GPU Direct RDMA (Enabled|Disabled) for HCA (\d{1,4}) '([^']{0,80})'")
_GPU_GDR = re.compile(
    rb"GPU Direct RDMA (Enabled|Disabled) for GPU.{0,200}?(?:HCA |NET/)(\S{1,30}).{0,200}?distance (\d{1,3}) [<>]=? (\d{1,3})"
)
_CONNECTED = re.compile(
    rb"Connected all (?:rings(?:, use ring PXN (\d) GDR (\d))?|trees)|Connected NVLS tree|Connected binomial trees"
)
_COUNTS = re.compile(
    rb"(\d{1,4}) coll channels, (?:\d{1,4} collnet channels, )?(?:(\d{1,4}) nvls channels, )?(\d{1,4}) p2p channels"
)
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


def interpret(message: bytes) -> Optional[Action]:
    """The action for a message; None when the table of errors is to be asked. Those that stand in `shortcuts` come here, too, when they look odd."""
    if b"omm 0x" in message[:160] and not message.startswith(b"NVLS"):
        return _read_comm(message)
    for reader in _READERS.get(message[:4], ()):
        action = reader(message)
        if action:
            return action
    return _read_counts(message) if b" coll channels, " in message else None


def _read_comm(message: bytes) -> Optional[Action]:
    match = _NODES.match(message) if b" nNodes " in message else None
    if match:
        return do.nodes, (_text(match[1]), int(match[2]), size(match[3]))
    said = comm_lines.read(message)
    if said:
        return do.comm, said
    match = _OP.match(message)
    if match:
        return do.operation, (_text(match[1]), int(match[2], 16), _text(match[3]))
    return None


@functools.lru_cache(maxsize=1024)
def size(text: bytes) -> Optional[Tuple[Any, ...]]:
    """`16 nNodes 2 localRanks 8 localRank 3 MNNVL 0` as `log_actions.counted` takes it; None when it is something else."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    return (*map(int, match.groups()[:4]), match[5] == b"1" if match[5] else None)


def _read_setting(message: bytes) -> Optional[Action]:
    match = VERSION.match(message)
    if match:
        return do.version, (_text(match[1]), _text(match[2]) if match[2] else None)
    if message.startswith(b"NCCL git version "):
        return do.git, (_text(message[17:80]).strip(),)
    match = _SETTING.match(message)
    return (do.setting, (_text(match[1]), _text(match[2]).strip())) if match else None


def _read_bootstrap(message: bytes) -> Optional[Action]:
    if message.startswith(b"Bootstrap timings total "):
        return (do.bootstrapped, (message,)) if message.rstrip().endswith(b")") else None
    head, using, rest = message.partition(b": Using")
    match = _ADDRESS.search(rest[:400]) if using else None
    if match:
        return do.bootstrap, (_text(match[1]), _text(match[2]), head.endswith(b" "))
    return None


def _read_net(message: bytes) -> Optional[Action]:
    if message.startswith((b"NET/IB : Using", b"NET/Socket : Using")):
        return _read_devices(message)
    if message.startswith(b"NET/IB : No device found"):
        return do.no_ib, ()
    match = _HCA_GDR.match(message)
    if match:
        return do.hca_gdr, (int(match[3]), _text(match[4]), match[2] == b"Enabled")
    match = _LOADED_PLUGIN.match(message)
    if match:
        return do.net_step, ("net_plugins", _text(match[1]))
    match = _VIRTUAL.match(message)
    if match:
        return do.net_step, ("virtual_devices", f"{_text(match[1])}:{_text(match[2])}")
    match = _PLUGIN_NAME.match(message)
    if match:
        return do.setting, ("NCCL_NET_PLUGIN", _text(match[1]))
    match = _IB_SPEED.match(message)
    if match:
        return do.speed, (int(match[1]), int(match[3]))
    match = _QP.match(message)
    if match:
        return do.qp, (int(match[1]), int(match[2]) if match[2] else None)
    return None


def _read_devices(message: bytes) -> Action:
    if message.startswith(b"NET/Socket"):
        sockets = tuple(
            (int(i), _text(name), None, None, _text(address)) for i, name, address in _SOCKET_DEVICE.findall(message)
        )
        return do.devices, (sockets, None, ())
    ports = tuple((int(i), _text(name), int(port), _text(link)) for i, name, port, link in _IB_DEVICE.findall(message))
    _, _, oob = message.partition(b"; OOB ")
    match = _ADDRESS.match(oob)
    return do.devices, (
        ports,
        b" [RO]" in message if oob else None,
        (_text(match[1]), _text(match[2])) if match else (),
    )


def _read_plugin(message: bytes) -> Optional[Action]:
    match = _NET_PLUGIN.match(message)
    if match:
        return do.net_step, ("initialized" if match[1] == b"Initialized" else "failed", _text(match[2]))
    match = _OTHER_PLUGIN.match(message)
    return (do.net_step, ("net_plugins", _text(match[1]))) if match else None


def _read_timings(message: bytes) -> Optional[Action]:
    if message.startswith((b"Init timings:", b"Init timings - ")) and message.rstrip().endswith(b")"):
        return do.timed, (message,)
    return None


def _read_connected(message: bytes) -> Optional[Action]:
    match = _CONNECTED.match(message)
    if not match:
        return None
    pxn, gdr = (flag == b"1" if flag else None for flag in match.groups())
    return do.connected, (pxn, gdr, b"NVLS" in match[0])


def _read_gpu_gdr(message: bytes) -> Optional[Action]:
    match = _GPU_GDR.match(message)
    return (do.gpu_gdr, (match[1] == b"Enabled", _text(match[2]), int(match[3]), int(match[4]))) if match else None


def _after(
    prefix: bytes, function: Callable[..., None], convert: Callable[[bytes], Any]
) -> Callable[[bytes], Optional[Action]]:
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
    return lambda message: seen if message.startswith(prefix) else None


def _read_counts(message: bytes) -> Optional[Action]:
    match = _COUNTS.match(message)
    if not match:
        return None
    return do.counts, (int(match[1]), int(match[2]) if match[2] else None, int(match[3]))


def _read_ras(message: bytes) -> Optional[Action]:
    match = _RAS.match(message)
    return (do.ras, (f"{_text(match[1])}:{_text(match[2])}",)) if match else None


def _read_nvls(message: bytes) -> Optional[Action]:
    if _NVLS_USED.match(message):
        return do.nvls_used, ()
    match = _NVLS.match(message)
    return (do.nvls, (not match[1],)) if match else None


_NET_COUNT = re.compile(rb"Rank (\d{1,9}): (\d{1,4}) Net devices")


def _read_net_count(message: bytes) -> Optional[Action]:
    match = _NET_COUNT.match(message)
    return (do.net_count, (int(match[1]), int(match[2]))) if match else None


_Reader = Callable[[bytes], Optional[Action]]
_READERS: Dict[bytes, List[_Reader]] = {
    b"NCCL": [_read_setting],
    b"cuda": [_after(b"cudaDriverVersion ", do.driver, int)],
    b"Boot": [_read_bootstrap],
    b"NET/": [_read_net],
    b"Usin": [_after(b"Using network ", do.network, lambda raw: _text(raw[:80]).strip())],
    b"Init": [_read_plugin, _read_timings],
    b"Fail": [_read_plugin],
    b"Succ": [_read_plugin],
    b"DMA-": [_after(b"DMA-BUF is available on GPU device ", do.dmabuf, int)],
    b"GPU ": [_read_gpu_gdr],
    b"Conn": [_read_connected],
    b"RAS ": [_read_ras],
    b"Tree": [lambda message: (do.tree, (message,)) if message.startswith(b"Trees ") else None],
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
    b"Coll": [_after(b"CollNet ", do.collective_network, bytes)],
}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
