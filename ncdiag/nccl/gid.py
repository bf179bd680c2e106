"""Which GID index NCCL takes on a port, and what is wrong with it.

Source: net_ib (ncclIbGetGidIndex, ncclUpdateGidIndex, ncclIbRoceGetVersionNum) of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ncdiag.nccl.settings import integer
from ncdiag.nccl.version import NEWEST_READ, Version

AUTOMATIC_SINCE = (2, 21, 0)
"""Before, index 0 is taken unless NCCL_IB_GID_INDEX says otherwise."""

UNREADABLE_TYPE_SINCE = (2, 27, 3)
"""Before, an entry whose type cannot be read (EINVAL, as in some containers) ends the search with an error."""

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


@dataclass(frozen=True)
class Gid:
    """One entry of a port's table."""

    index: int
    address: ipaddress.IPv6Address
    roce: Optional[int] = None  # 1 or 2; None: the type cannot be read (empty slot, other network namespace)
    netdev: Optional[str] = None

    @functools.cached_property
    def empty(self) -> bool:
        return int(self.address) in (0, 0xFE80 << 112)

    @functools.cached_property
    def ipv4(self) -> Optional[ipaddress.IPv4Address]:
        return self.address.ipv4_mapped

    @functools.cached_property
    def family(self) -> str:
        """AF_INET for IPv4-mapped ones. NCCL counts an empty entry as AF_INET6."""
        return "AF_INET" if self.ipv4 is not None else "AF_INET6"

    @functools.cached_property
    def link_local(self) -> bool:
        return int(self.address) >> 64 == 0xFE80 << 48

    @functools.cached_property
    def usable(self) -> bool:
        """Filled and not link-local."""
        return not self.empty and not self.link_local

    def __str__(self) -> str:
        if self.empty:
            return "empty"
        where = f" on {self.netdev}" if self.netdev else ""
        kind = f"RoCE v{self.roce}" if self.roce else "of unreadable type"
        return f"{self.ipv4 or self.address} {kind}{where}"


@dataclass(frozen=True)
class Choice:
    index: int
    how: str  # "set" by NCCL_IB_GID_INDEX, the version's "default", or "automatic"
    gid: Optional[Gid]  # None: past the end of the table
    problems: List[str] = field(default_factory=list)  # why a connection with it fails, or goes elsewhere
    doubts: List[str] = field(default_factory=list)  # why the answer itself is not certain


@functools.lru_cache(maxsize=1 << 16)
def parse_gid(text: str) -> ipaddress.IPv6Address:
    """`0000:0000:0000:0000:0000:ffff:0a00:0001` as sysfs writes it. Raises ValueError."""
    return ipaddress.IPv6Address(text.strip())


_VERSIONS = {"IB/RoCE v1": 1, "RoCE v1": 1, "RoCE v2": 2}


@functools.lru_cache(maxsize=1 << 17)
def _gid(index: int, text: str, kind: Optional[str], netdev: Optional[str]) -> Gid:
    """Several probes look at the same entry."""
    return Gid(index, parse_gid(text), _VERSIONS.get(kind or ""), netdev)


def from_facts(entries: Sequence[Mapping[str, Any]]) -> List[Gid]:
    """Facts of the probe `roce-gid`: index, gid, type (`RoCE v2`, `IB/RoCE v1`, None), netdev."""
    return [_gid(one["index"], one["gid"], one["type"], one["netdev"]) for one in entries]


def choose(
    table: Sequence[Gid], link_layer: str, environ: Mapping[str, str], version: Optional[Version] = None
) -> Choice:
    """`table` holds the filled entries of one port in any order; entries that are missing count as empty.

    `link_layer` as in sysfs: InfiniBand or Ethernet.
    """
    release = version or NEWEST_READ
    entries = {gid.index: gid for gid in table}
    given = integer(environ.get("NCCL_IB_GID_INDEX", ""))
    if link_layer != "Ethernet" and release >= (2, 22, 0):
        return Choice(0, "default", entries.get(0), [], ["a routable FLID at another index is not looked for here"])
    if given is not None and given >= 0:
        return _judged(given, "set", entries, link_layer, environ, release, [])
    if release < AUTOMATIC_SINCE:
        return _judged(max(given or 0, 0), "default", entries, link_layer, environ, release, [])
    doubts: List[str] = []
    index = _automatic(entries, environ, doubts)
    choice = _judged(index, "automatic", entries, link_layer, environ, release, doubts)
    if doubts and release < UNREADABLE_TYPE_SINCE:
        choice.problems.append(f"{doubts[0]}, at which NCCL before 2.27 stops with an error")
    return choice


@functools.lru_cache(maxsize=1 << 12)
def _empty(index: int) -> Gid:
    return Gid(index, ipaddress.IPv6Address(0))


def _automatic(entries: Dict[int, Gid], environ: Mapping[str, str], doubts: List[str]) -> int:
    family = _family(environ)
    wanted = _wanted_version(environ)
    network = _range(environ, family)
    best = entries.get(0, _empty(0))
    for index in range(1, max(entries, default=0) + 1):
        candidate = entries.get(index, _empty(index))
        inside = _inside(candidate, network)
        if candidate.family != best.family and candidate.family == family and inside:
            best = candidate
            continue
        if candidate.family != family or not candidate.usable or not inside:
            continue
        if candidate.roce is None or (best.roce is None and best.usable):
            doubts.append(f"the type of index {index if candidate.roce is None else best.index} cannot be read")
        if candidate.roce == wanted and (best.roce != candidate.roce or not best.usable):
            best = candidate
    return best.index


def _family(environ: Mapping[str, str]) -> str:
    return "AF_INET6" if environ.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6" else "AF_INET"


def _wanted_version(environ: Mapping[str, str]) -> int:
    number = integer(environ.get("NCCL_IB_ROCE_VERSION_NUM", ""))
    return 2 if number is None else number


def _range(environ: Mapping[str, str], family: str) -> Optional[Network]:
    text = environ.get("NCCL_IB_ADDR_RANGE", "")
    if "/" not in text:
        return None
    try:
        network = ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None
    return network if (network.version == 4) == (family == "AF_INET") else None


def _inside(gid: Gid, network: Optional[Network]) -> bool:
    if network is None:
        return True
    if network.version == 4:
        return (gid.ipv4 or ipaddress.IPv4Address(int(gid.address) & 0xFFFFFFFF)) in network
    return gid.address in network


def _judged(
    index: int,
    how: str,
    entries: Dict[int, Gid],
    link_layer: str,
    environ: Mapping[str, str],
    release: Version,
    doubts: List[str],
) -> Choice:
    gid = entries.get(index, _empty(index))
    if link_layer != "Ethernet":
        return Choice(index, how, gid, [], doubts)
    problems = []
    if gid.empty:
        problems.append(f"index {index} is empty")
    elif gid.link_local:
        problems.append(f"index {index} is link-local ({gid.address}), which no router passes")
    if gid.roce == 1 and _wanted_version(environ) != 1:
        problems.append(f"index {index} is RoCE v1, which does not cross a router and does not match v2 peers")
    if not problems and not any(gid.roce == 2 and gid.usable for gid in entries.values()):
        problems.append("no entry of the table is a routable RoCE v2 address")
    return Choice(index, how, gid if index in entries else None, problems, doubts)


def recommend(table: Sequence[Gid], netdev: Optional[str] = None) -> Optional[Gid]:
    """The entry to use: RoCE v2, IPv4 before IPv6, not link-local, of `netdev` if one is named; None without any."""
    good = [gid for gid in table if gid.roce == 2 and gid.usable and netdev in (None, gid.netdev)]
    return min(good, key=lambda gid: (gid.ipv4 is None, gid.index), default=None)
