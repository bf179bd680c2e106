"""The `Channel` lines: what one rank uses towards one peer, and the order of the ranks in a ring.

`Channel 03/0 : 8[0] -> 7[7] [send] via NET/IB/0(9)/GDRDMA/Shared`: channel 3, connection 0 (1 is send/recv), rank 8 with NVML device 0 sends
to rank 7 over device 0 of the network IB through the GPU of rank 9 (PXN). `Channel 00/16 : 0 1 2 3` is a ring of 16, printed by rank 0.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from .. import nodeset
from .log_facts import TEXT_LIMIT, Line, Link, Ring

At = Tuple[str, int, bytes]  # source, line number, the line

_LINK = re.compile(
    rb"(?:/(\d{1,3}))? ?: (\d{1,9})\[([0-9a-f]{1,12})\] -> (\d{1,9})\[([0-9a-f]{1,12})\](?: \[(send|receive)\])? via (\S.{0,300})$"
)
_RING = re.compile(rb"/\d{1,3} ?:[ \d]{2,}$")
_NET = re.compile(r"NET/(.+)/(\d{1,5})(?:\((\d{1,9})\))?(.*)$")
_COLLNET = re.compile(rb"\d{1,3}(?:/\d{1,3})? ?: (\d{1,9}) \[(send|receive)\] via COLLNET/(.+)/(\d{1,5})(\S*)$")
_TREE = re.compile(r"(-?\d{1,9})/(-?\d{1,9})/(-?\d{1,9})->-?\d{1,9}->(-?\d{1,9})$")
_BRANCH = re.compile(r"\[(\d{1,3})\] (\S+)")
_P2P_FLAGS = re.compile(r"((?:/read|/CE)*)$")


class Seen(NamedTuple):
    """A channel line, as far as it is read when it first comes."""

    owner: int  # the rank that prints it
    device: int  # that rank's NVML device, or bus id in old releases
    peer: int
    receives: bool
    p2p: bool
    via: bytes
    at: At


def read(tail: bytes, at: At) -> Optional[Seen]:
    """`tail` is what follows the two digits of the channel; None when it is no complete channel line."""
    match = _LINK.match(tail)
    if not match:
        return None
    connection, left, left_dev, right, right_dev, direction, via = match.groups()
    if direction == b"receive":
        return Seen(int(right), int(right_dev, 16), int(left), True, connection == b"1", via, at)
    return Seen(int(left), int(left_dev, 16), int(right), False, connection == b"1", via, at)


def placed(seen: Seen, channels: int) -> Link:
    """The link of a channel line that came that often."""
    _, _, peer, receives, p2p, via, (source, number, text) = seen
    transport, device, gdr, shared, proxy, flags = _via(via)
    at = Line(source, number, text[:TEXT_LIMIT].decode("utf-8", "replace"))
    return Link(
        peer, "receive" if receives else "send", transport, device, gdr, shared, proxy, flags, channels, p2p, at
    )


def is_ring(tail: bytes) -> bool:
    return _RING.match(tail) is not None


@functools.lru_cache(maxsize=1024)
def _via(raw: bytes) -> Tuple[str, Optional[int], bool, bool, Optional[int], str]:
    """What follows `via`: transport, device, GPUDirect, shared, proxy rank, what else."""
    via = raw.decode("utf-8", "replace").rstrip()
    match = _NET.match(via)
    if match:
        name, device, proxy, rest = match.groups()
        flags = rest.replace("/GDRDMA", "").replace("/Shared", "")
        return "NET/" + name, int(device), "/GDRDMA" in rest, "/Shared" in rest, int(proxy) if proxy else None, flags
    end = _P2P_FLAGS.search(via)
    flags = end.group(1) if end else ""
    return via[: len(via) - len(flags)], None, False, False, None, flags


def collnet(rest: bytes, at: Line) -> Optional[Link]:
    """A `CollNet 00/0 : R [send] via COLLNET/NAME/DEV` line; the peer is the switch, so peer is the rank itself."""
    match = _COLLNET.match(rest)
    if not match:
        return None
    rank, direction, name, device, flags = match.groups()
    transport = "COLLNET/" + name.decode("utf-8", "replace")
    text = flags.decode("utf-8", "replace")
    gdr = "/GDRDMA" in text
    return Link(
        int(rank), direction.decode(), transport, int(device), gdr, flags=text.replace("/GDRDMA", ""), channels=1, at=at
    )


def merge(links: Iterable[Link]) -> List[Link]:
    """Links that differ in nothing but the number of channels become one; sorted by peer."""
    merged: Dict[Tuple[object, ...], Link] = {}
    for one in links:
        key = (
            one.peer,
            one.direction,
            one.transport,
            one.device,
            one.gdr,
            one.shared,
            one.proxy_rank,
            one.flags,
            one.p2p,
        )
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


def name(one: Link) -> str:
    """NET/IB/GDRDMA, P2P/CUMEM/read, SHM/direct …: the transport without peer and device; PXN is told too."""
    via = one.transport + ("/GDRDMA" if one.gdr else "") + one.flags
    return via + " (PXN)" if one.proxy_rank is not None else via
