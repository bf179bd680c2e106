"""Which network interface NCCL will take, worked out as NCCL does it. Pure; travels to nodes.

Source: NVIDIA/nccl src/misc/socket.cc and src/os/linux.cc (findInterfaces, ncclFindInterfaces, ncclFindInterfaceMatchSubnet),
src/bootstrap.cc (bootstrapNetInit), src/misc/utils.cc (parseStringList, matchIfList), tags v2.18.1-1 to v2.30.7-1.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ncdiag.nccl.version import NEWEST_READ, Version

RUNNING_SINCE: Version = (2, 28, 3)
"""From here on an interface must be IFF_RUNNING, and virbr* comes last in the default order."""

MAX_INTERFACES = 16
"""MAX_IFS: names that a list may hold, and interfaces that the socket transport takes."""

FAMILIES = {"AF_INET": "inet", "AF_INET6": "inet6"}


Ip = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]


class Address(NamedTuple):
    """One entry of getifaddrs(3), in its order."""

    name: str
    """The interface, or an IPv4 address's label (`eth0:1`)."""
    address: str
    prefix: int
    running: bool
    """IFF_RUNNING of the interface: up and with carrier."""

    @property
    def family(self) -> str:
        return "inet6" if ":" in self.address else "inet"

    @property
    def ip(self) -> Ip:
        """`address` as a number. Raises ValueError."""
        return _ip(self.address)

    @property
    def network(self) -> str:
        """`192.0.2.0/24`"""
        return _network(self.address, self.prefix)

    def holds(self, other: str) -> bool:
        """Whether `other` is an address of this one's network."""
        try:
            return ipaddress.ip_address(other) in ipaddress.ip_network(
                "%s/%d" % (self.address, self.prefix), strict=False
            )
        except ValueError:
            return False


@functools.lru_cache(maxsize=65536)
def _ip(address: str) -> Ip:
    return ipaddress.ip_address(address)


@functools.lru_cache(maxsize=65536)
def _network(address: str, prefix: int) -> str:
    return str(ipaddress.ip_network("%s/%d" % (address, prefix), strict=False))


class Choice(NamedTuple):
    """What NCCL takes."""

    chosen: List[Address]
    """For the bootstrap one address, for the socket transport up to 16; empty when NCCL ends with an error."""
    rule: str
    """Why, in words: `NCCL_SOCKET_IFNAME=eth`, `first interface whose name begins with ib` …"""
    error: Optional[str] = None
    """NCCL's own message when nothing is chosen; None also when it cannot be worked out here (see `rule`)."""


class Filter(NamedTuple):
    """A list as NCCL_SOCKET_IFNAME and NCCL_IB_HCA hold it. The sign counts once, in front of the whole list: `^`, `=` or `^=`."""

    names: Tuple[str, ...]
    exclude: bool
    exact: bool

    def lets(self, name: str) -> bool:
        """Whether an interface or device of that name passes. An empty list matches every name, as in NCCL."""
        hit = not self.names or any(name == wanted if self.exact else name.startswith(wanted) for wanted in self.names)
        return hit != self.exclude


@functools.lru_cache(maxsize=4096)
def parse(value: str) -> Filter:
    """`^=eth0,eth1:1` as a Filter; the port behind a colon is cut off, blanks belong to the name as in NCCL."""
    exclude = value.startswith("^")
    value = value[1:] if exclude else value
    exact = value.startswith("=")
    names = [item.partition(":")[0] for item in value[1 if exact else 0 :].split(",")]
    return Filter(tuple(name for name in names if name)[:MAX_INTERFACES], exclude, exact)


def _find(
    addresses: Sequence[Address], wanted: str, family: Optional[str], version: Version, limit: int
) -> List[Address]:
    accepts = parse(wanted)
    found: Dict[str, Address] = {}
    for address in addresses:
        if len(found) >= limit:
            break
        usable = (
            (address.running or version < RUNNING_SINCE)
            and family in (None, address.family)
            and address.address != "::1"
        )
        if usable and accepts.lets(address.name):
            found.setdefault(address.name, address)
    return list(found.values())


def _by_comm_id(addresses: Sequence[Address], comm_id: str) -> Optional[List[Address]]:
    """The first interface in the subnet of NCCL_COMM_ID; None when that names a host, which cannot be resolved here."""
    match = re.match(r"\[([0-9a-fA-F:.]+)(?:%\w+)?\]:\d+$|([0-9.]+):\d+$", comm_id)
    if match is None:
        return None
    return [address for address in addresses if address.holds(match.group(1) or match.group(2))][:1]


def _find_default(
    addresses: Sequence[Address], environ: Mapping[str, str], family: Optional[str], version: Version, limit: int
) -> Choice:
    found = _find(addresses, "ib", family, version, limit)
    if found:
        return Choice(found, "default order: an interface whose name begins with ib comes first")
    comm_id = environ.get("NCCL_COMM_ID", "")
    if len(comm_id) > 1:
        matched = _by_comm_id(addresses, comm_id)
        if matched is None:
            return Choice([], "NCCL_COMM_ID=%s names a host; the interface in its subnet is taken" % comm_id)
        if matched:
            return Choice(matched, "the interface in the subnet of NCCL_COMM_ID=%s" % comm_id)
    last = ["docker", "lo", "virbr"] if version >= RUNNING_SINCE else ["docker", "lo"]
    found = _find(addresses, "^" + ",".join(last), family, version, limit)
    if found:
        return Choice(
            found, "default order: the first interface that is not %s" % ", ".join(name + "*" for name in last)
        )
    for name in last:
        found = _find(addresses, name, family, version, limit)
        if found:
            return Choice(found, "default order: nothing but %s* is left" % name)
    return Choice([], "default order", "Bootstrap : no socket interface found")


def transport(
    addresses: Sequence[Address],
    environ: Mapping[str, str],
    version: Version = NEWEST_READ,
    limit: int = MAX_INTERFACES,
) -> Choice:
    """The interfaces of the socket transport, best first. `addresses` in getifaddrs order, `environ` with the conf files in it."""
    family = FAMILIES.get(environ.get("NCCL_SOCKET_FAMILY", ""))
    wanted = environ.get("NCCL_SOCKET_IFNAME", "")
    if len(wanted) <= 1:
        return _find_default(addresses, environ, family, version, limit)
    found = _find(addresses, wanted, family, version, limit)
    return Choice(found, "NCCL_SOCKET_IFNAME=" + wanted, None if found else "Bootstrap : no socket interface found")


def bootstrap(addresses: Sequence[Address], environ: Mapping[str, str], version: Version = NEWEST_READ) -> Choice:
    """The one interface of the bootstrap. With NCCL_COMM_ID it is that of its subnet, whatever NCCL_SOCKET_IFNAME says."""
    comm_id = environ.get("NCCL_COMM_ID")
    if comm_id is None:
        return transport(addresses, environ, version, 1)
    matched = _by_comm_id(addresses, comm_id)
    if matched is None:
        return Choice([], "NCCL_COMM_ID=%s names a host; the interface in its subnet is taken" % comm_id)
    return Choice(
        matched,
        "the interface in the subnet of NCCL_COMM_ID=%s" % comm_id,
        None if matched else "NET/Socket : No usable listening interface found",
    )


VIRTUAL_NAMES = (
    ("docker", "a Docker bridge"),
    ("br-", "a Docker network's bridge"),
    ("podman", "a Podman bridge"),
    ("nerdctl", "a nerdctl bridge"),
    ("cni", "a Kubernetes CNI bridge"),
    ("cali", "a Calico pod link"),
    ("vxlan.calico", "Calico's overlay"),
    ("flannel", "Flannel's overlay"),
    ("cilium", "a Cilium link"),
    ("lxc", "a Cilium or LXC link"),
    ("lxdbr", "an LXD bridge"),
    ("kube-", "a Kubernetes service link"),
    ("nodelocaldns", "a DNS cache's link"),
    ("antrea", "Antrea's gateway"),
    ("genev_sys", "a Geneve overlay"),
    ("weave", "Weave's overlay"),
    ("ovn", "an OVN link"),
    ("ovs", "an Open vSwitch link"),
    ("virbr", "a libvirt bridge"),
    ("vnet", "a virtual machine's link"),
    ("vmnet", "a VMware link"),
    ("vboxnet", "a VirtualBox link"),
    ("veth", "a container link"),
    ("tailscale", "a Tailscale tunnel"),
    ("wg", "a WireGuard tunnel"),
    ("zt", "a ZeroTier tunnel"),
    ("nebula", "a Nebula tunnel"),
    ("tun", "a tunnel"),
    ("tap", "a tap device"),
    ("ppp", "a PPP link"),
    ("vxlan", "an overlay"),
    ("gre", "a GRE tunnel"),
    ("sit", "an IPv6 tunnel"),
    ("ipip", "an IP tunnel"),
    ("tunl", "an IP tunnel"),
    ("ip6tnl", "an IPv6 tunnel"),
    ("dummy", "a dummy link"),
    ("ifb", "a traffic-shaping link"),
)
"""Beginnings of the names that software gives to its links, and what they are; the first that fits counts."""

VIRTUAL_KINDS = {
    "bridge": "a bridge without a network card in it",
    "vxlan": "an overlay",
    "geneve": "an overlay",
    "tun": "a tunnel",
    "wireguard": "a WireGuard tunnel",
    "dummy": "a dummy link",
    "ifb": "a traffic-shaping link",
    "gre": "a GRE tunnel",
    "gretap": "a GRE tunnel",
    "ip6gre": "a GRE tunnel",
    "ipip": "an IP tunnel",
    "sit": "an IPv6 tunnel",
    "ip6tnl": "an IPv6 tunnel",
    "vcan": "no network at all",
    "nlmon": "no network at all",
}
"""IFLA_INFO_KIND of links that no cable stands behind. A veth is not in it: inside a pod the only link is one."""


def nature(name: str, kind: Optional[str], members: Sequence[str] = (), cards: Collection[str] = ()) -> Optional[str]:
    """What kind of virtual link it is (`a Docker bridge`), None for one that reaches other machines.

    `members`: interfaces that have it as their master; `cards`: interfaces with a device, a bond or a VLAN of one.
    A bridge that holds a network card reaches other machines, whatever its name.
    """
    if any(member in cards for member in members):
        return None
    return _named(name, kind)


@functools.lru_cache(maxsize=1 << 14)
def _named(name: str, kind: Optional[str]) -> Optional[str]:
    """The same few names come again on every node."""
    for beginning, what in VIRTUAL_NAMES:
        if name.startswith(beginning):
            return what
    return VIRTUAL_KINDS.get(kind or "")


def local_addresses(facts: Optional[Mapping[str, Any]]) -> List[Address]:
    """The facts of the probe `interfaces` as NCCL sees them; empty when there are none."""
    if not facts:
        return []
    running = {link["name"] for link in facts["links"] if "RUNNING" in link["flags"]}
    return [
        Address(entry["name"], entry["address"], entry["prefix"], entry["interface"] in running)
        for entry in facts["addresses"]
    ]


def natures(facts: Mapping[str, Any]) -> Dict[str, Optional[str]]:
    """Interface -> what kind of virtual link it is, None for one that reaches other machines. `facts`: of the probe `interfaces`."""
    links = facts["links"]
    cards = [
        link["name"]
        for link in links
        if link["driver"] or link["bond_mode"] or link["kind"] in ("bond", "team", "ipoib")
    ]
    cards += [link["name"] for link in links if link["lower"] in cards]  # a VLAN or macvlan of one
    reaching = set(cards)
    members: Dict[str, List[str]] = {}
    for link in links:
        if link["master"]:
            members.setdefault(link["master"], []).append(link["name"])
    return {link["name"]: nature(link["name"], link["kind"], members.get(link["name"], ()), reaching) for link in links}
