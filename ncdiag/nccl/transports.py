"""The `Channel` lines: what one rank uses towards one peer, and the order of the ranks in a ring.

`Channel 03/0 : 8[0] -> 7[7] [send] via NET/IB/0(9)/GDRDMA/Shared`: channel 3, connection 0 (1 is send/recv), rank 8 with NVML device 0 sends
to rank 7 over device 0 of the network IB through the GPU of rank 9 (PXN). `Channel 00/16 : 0 1 2 3` is a ring of 16, printed by rank 0.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from .. import nodeset
from .log_facts import Link, Ring
from .places import At, line

_LINK = re.compile(
    rb"(?:/(\d{1,3}))? ?: (\d{1,9})\[([0-9a-f]{1,12})\] -> (\d{1,9})\[([0-9a-f]{1,12})\](?: \[(send|receive)\])? via (\S.{0,300})$"
)
_RING = re.compile(rb"/\d{1,3} ?:[ \d]{2,}$")
_NET = re.compile(r"((?:COLL)?NET/.+)/(\d{1,5})(?:\((\d{1,9})\))?(.*)$")
_COLLNET = re.compile(rb"\d{1,3}(?:/\d{1,3})? ?: (\d{1,9}) \[(send|receive)\] via (COLLNET/.+/\d{1,5}\S*)$")
_TREE = re.compile(r"(-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->-?\d{1,9}->(-?\d{1,9})$")
_BRANCH = re.compile(r"\[(\d{1,3})\] (\S+)")
_P2P_FLAGS = re.compile(r"((?:/read|/CE)*)$")


class Way(NamedTuple):
    """What stands behind `via`."""

    transport: str
    device: Optional[int]
    gdr: bool
    shared: bool
    proxy: Optional[int]
    flags: str
    name: str  # NET/IB/GDRDMA, P2P/CUMEM/read, SHM/direct …: without peer and device; PXN is told, too


Key = Tuple[
    int, str, bool, str
]  # of a link among those of its rank: peer, direction, send/recv, what stands behind `via`


# A channel line without its channel, the same for all channels, and in all communicators whose ranks lie alike: the rank that prints it, that rank's
# NVML device (or bus id in old releases) in hexadecimal digits, the link, and what was read (the same object for all ranks of a process).
Seen = Tuple[int, bytes, Key, bytes]


def read(tail: bytes) -> Optional[Seen]:
    """`tail` is what follows the two digits of the channel; None when it is no complete channel line, or more than that."""
    match = _LINK.match(tail) if len(tail) <= 512 else None
    if not match:
        return None
    connection, left, left_dev, right, right_dev, direction, via = match.groups()
    if b" " in via and (b"NCCL " in via or b" [repeated " in tail):
        return None
    if direction == b"receive":
        return int(right), right_dev, (int(left), "receive", connection == b"1", _text(via)), tail
    return int(left), left_dev, (int(right), "send", connection == b"1", _text(via)), tail


Said = Tuple[Seen, At, int]  # what a channel line says, where the first stands, how many say it


def links(lines: Iterable[Said]) -> List[Link]:
    """The links of one rank, equal ones together, sorted by peer."""
    merged: Dict[Key, Link] = {}
    for (_, _, key, _), at, channels in lines:
        known = merged.get(key)
        if known is not None:
            known.channels += channels
            continue
        peer, direction, p2p, via = key
        transport, device, gdr, shared, proxy, flags, _ = way(via)
        merged[key] = Link(
            peer, direction, transport, device, gdr, shared, proxy, flags, channels, p2p, line(at)
        )  # fmt: skip
    return sorted(merged.values(), key=lambda one: (one.peer, one.direction, one.transport, one.device or 0))


def is_ring(tail: bytes) -> bool:
    return _RING.match(tail) is not None


@functools.lru_cache(maxsize=1024)
def _text(via: bytes) -> str:
    return via.decode("utf-8", "replace").rstrip()


@functools.lru_cache(maxsize=1024)
def way(via: str) -> Way:
    """What follows `via`."""
    match = _NET.match(via)
    if match:
        name, device, proxy, rest = match.groups()
        flags = rest.replace("/GDRDMA", "").replace("/Shared", "")
        return _named(name, int(device), "/GDRDMA" in rest, "/Shared" in rest, int(proxy) if proxy else None, flags)
    end = _P2P_FLAGS.search(via)
    flags = end.group(1) if end else ""
    return _named(via[: len(via) - len(flags)], None, False, False, None, flags)


def _named(transport: str, device: Optional[int], gdr: bool, shared: bool, proxy: Optional[int], flags: str) -> Way:
    name = transport + ("/GDRDMA" if gdr else "") + flags
    return Way(transport, device, gdr, shared, proxy, flags, name + " (PXN)" if proxy is not None else name)


def collnet(rest: bytes) -> Optional[Seen]:
    """A `CollNet 00/0 : R [send] via COLLNET/NAME/DEV` line; the peer is the switch, so peer is the rank itself."""
    match = _COLLNET.match(rest)
    if not match:
        return None
    rank, direction, via = match.groups()
    return int(rank), b"", (int(rank), direction.decode(), False, _text(via)), rest


def rings(orders: Dict[int, bytes], nranks: int) -> List[Ring]:
    """Ring lines by channel number, equal orders together. A line that NCCL cut at its limit of 1023 bytes is left out."""
    channels: Dict[Tuple[int, str], List[int]] = {}
    for channel, tail in sorted(orders.items()):
        channels.setdefault(_order(tail), []).append(channel)
    return [Ring(order, numbers) for (count, order), numbers in channels.items() if count == nranks]


@functools.lru_cache(maxsize=64)
def _order(tail: bytes) -> Tuple[int, str]:
    """Of a ring line: how many ranks, and which, folded."""
    numbers = list(map(int, tail.partition(b":")[2].split()))
    return len(numbers), nodeset.order(numbers)


class Branch(NamedTuple):
    """The neighbours of a rank in the trees of some channels."""

    up: Optional[int]  # None: it is the root
    down: List[int]
    channels: List[int]


def branches(trees: str) -> List[Branch]:
    """`[0] 1/-1/-1->0->-1 [1] …`: who is above (None: nobody) and below this rank, channels with the same neighbours together."""
    channels: Dict[str, List[str]] = {}
    for number, neighbours in _BRANCH.findall(trees):
        channels.setdefault(neighbours, []).append(number)
    found = []
    for neighbours, numbers in channels.items():
        match = _TREE.match(neighbours)
        if match:
            a, b, c, up = map(int, match.groups())
            found.append(
                Branch(up if up >= 0 else None, [x for x in (a, b, c) if x >= 0], [int(number) for number in numbers])
            )
    return found


def seconds(text: bytes) -> Dict[str, float]:
    """`… total 2.13 (kernels 0.22, alloc 1.62)` as name -> seconds; empty when a number is cut."""
    words = text[text.rfind(b"total ") :].translate(None, b"(),\r").decode("ascii", "replace").split()
    try:
        return dict(zip(words[::2], map(float, words[1::2])))
    except ValueError:
        return {}
