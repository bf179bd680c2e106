"""The `Channel` lines: what one rank uses towards one peer, and the order of the ranks in a ring.

`Channel 03/0 : 8[0] -> 7[7] [send] via NET/IB/0(9)/GDRDMA/Shared`: channel 3, connection 0 (1 is send/recv), rank 8 with NVML device 0 sends
to rank 7 over device 0 of the network IB through the GPU of rank 9 (PXN). `Channel 00/16 : 0 1 2 3` is a ring of 16, printed by rank 0.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Optional, Tuple

from .. import nodeset
from .log_facts import Line, Link, Ring

At = Tuple[str, int, bytes]  # source, line number, the line

_LINK = re.compile(rb"(?:/(\d{1,3}))? ?: (\d{1,9})\[([0-9a-f]{1,12})\] -> (\d{1,9})\[([0-9a-f]{1,12})\](?: \[(send|receive)\])? via (\S.{0,300})$")
_RING = re.compile(rb"/\d{1,3} ?:[ \d]{2,}$")
_NET = re.compile(r"NET/(.+)/(\d{1,5})(?:\((\d{1,9})\))?(.*)$")
_COLLNET = re.compile(rb"\d{1,3}(?:/\d{1,3})? ?: (\d{1,9}) \[(send|receive)\] via COLLNET/(.+)/(\d{1,5})(\S*)$")
_TREE = re.compile(rb"\[(\d{1,3})\] (-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->(-?\d{1,9})->(-?\d{1,9})(?= |$)")
_P2P_FLAGS = re.compile(r"((?:/read|/CE)*)$")


def owner(tail: bytes) -> Optional[Tuple[int, int, int]]:
    """The rank that prints this line, its peer, and the NVML device or bus id (hex) of that rank; None when it is no complete channel line.

    `tail` is what follows the two digits of the channel.
    """
    match = _LINK.match(tail)
    if not match:
        return None
    _, left, left_dev, right, right_dev, direction, _ = match.groups()
    if direction == b"receive":
        return int(right), int(left), int(right_dev, 16)
    return int(left), int(right), int(left_dev, 16)


def is_ring(tail: bytes) -> bool:
    return _RING.match(tail) is not None


def link(tail: bytes, count: int, at: Line) -> Optional[Link]:
    """One channel line as a Link of `count` channels."""
    match = _LINK.match(tail)
    if not match:
        return None
    connection, left, _, right, _, direction, via = match.groups()
    found = _via(via.decode("utf-8", "replace").rstrip())
    found.direction = "receive" if direction == b"receive" else "send"
    found.peer = int(left if direction == b"receive" else right)
    found.p2p = connection == b"1"
    found.channels, found.at = count, at
    return found


def _via(via: str) -> Link:
    match = _NET.match(via)
    if match:
        name, device, proxy, rest = match.groups()
        gdr, shared = "/GDRDMA" in rest, "/Shared" in rest
        flags = rest.replace("/GDRDMA", "").replace("/Shared", "")
        return Link(-1, "send", "NET/" + name, int(device), gdr, shared, int(proxy) if proxy else None, flags)
    end = _P2P_FLAGS.search(via)
    flags = end.group(1) if end else ""
    return Link(-1, "send", via[: len(via) - len(flags)], flags=flags)


def collnet(rest: bytes, at: Line) -> Optional[Link]:
    """A `CollNet 00/0 : R [send] via COLLNET/NAME/DEV` line; the peer is the switch, so peer is the rank itself."""
    match = _COLLNET.match(rest)
    if not match:
        return None
    rank, direction, name, device, flags = match.groups()
    transport = "COLLNET/" + name.decode("utf-8", "replace")
    text = flags.decode("utf-8", "replace")
    gdr = "/GDRDMA" in text
    return Link(int(rank), direction.decode(), transport, int(device), gdr, flags=text.replace("/GDRDMA", ""), channels=1, at=at)


def merge(links: Iterable[Link]) -> List[Link]:
    """Links that differ in nothing but the number of channels become one; sorted by peer."""
    merged: Dict[Tuple[object, ...], Link] = {}
    for one in links:
        key = (one.peer, one.direction, one.transport, one.device, one.gdr, one.shared, one.proxy_rank, one.flags, one.p2p)
        if key in merged:
            merged[key].channels += one.channels
        else:
            merged[key] = one
    return sorted(merged.values(), key=lambda one: (one.peer, one.direction, one.transport, one.device or 0))


def rings(orders: Dict[int, bytes], nranks: int) -> List[Ring]:
    """Ring lines by channel number, equal orders together. A line that NCCL cut at its limit of 1023 bytes is left out."""
    found: Dict[bytes, Ring] = {}
    for channel, tail in sorted(orders.items()):
        numbers = tail.split(b":", 1)[1].split()
        if len(numbers) != nranks:
            continue
        key = b" ".join(numbers)
        if key not in found:
            found[key] = Ring(nodeset.order(int(number) for number in numbers))
        found[key].channels.append(channel)
    return list(found.values())


def tree(rest: bytes) -> Dict[str, object]:
    """`[0] 1/-1/-1->0->-1 [1] …` as channel -> up (None: root) and down."""
    found: Dict[str, object] = {}
    for channel, a, b, c, _, up in _TREE.findall(rest):
        found[channel.decode()] = {"up": int(up) if int(up) >= 0 else None, "down": [int(x) for x in (a, b, c) if int(x) >= 0]}
    return found


def name(one: Link) -> str:
    """NET/IB/GDRDMA, P2P/CUMEM/read, SHM/direct …: the transport without peer and device; PXN is told too."""
    via = one.transport + ("/GDRDMA" if one.gdr else "") + one.flags
    return via + " (PXN)" if one.proxy_rank is not None else via
