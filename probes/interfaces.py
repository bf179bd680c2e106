"""The network interfaces of a node, as facts for the other probes; nothing is judged here.

NCCL, gloo, vLLM and Ray each pick an interface by name, order and address, so the facts keep the order in which
getifaddrs(3) lists addresses: every IPv4 address by link, then every IPv6 one.

Source: rtnetlink dumps (RTM_GETLINK, RTM_GETADDR); else `ip -j addr`; else /proc/net/{if_inet6,route,fib_trie}; /sys/class/net.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import Any, Dict, List, Optional, Tuple, TypedDict

from ncdiag import rtnetlink
from ncdiag.host import Host, HostError
from ncdiag.model import Probe
from ncdiag.nccl.namespace import must_be_ours

NET = "/sys/class/net"
MAX_DETAILED = 256
"""Links whose sysfs files are read; a Kubernetes node can have a thousand veths, of which nothing more is needed."""
LOCAL_ADDRESS = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
DETAILS = {"speed_mbits": "speed", "carrier_changes": "carrier_changes"}


class Link(TypedDict):
    """One interface. None: the kernel does not say."""

    index: Optional[int]
    name: str
    flags: List[str]
    """Of UP, LOOPBACK, POINTOPOINT, RUNNING, NOARP, SLAVE, LOWER_UP."""
    mtu: Optional[int]
    """Bytes."""
    operstate: str
    """UP, DOWN, LOWERLAYERDOWN, DORMANT, UNKNOWN …"""
    mac: str
    kind: Optional[str]
    """The kernel's word for a virtual link: bridge, veth, vxlan, tun, bond, vlan, wireguard … None for a device and where it is not told."""
    lower: Optional[str]
    """The interface it stands on (a VLAN's parent)."""
    master: Optional[str]
    """The bridge, bond or team that it belongs to."""
    counters: Dict[str, int]
    """struct rtnl_link_stats64, or /sys/class/net/<if>/statistics; empty where neither could be read."""
    driver: Optional[str]
    """/sys/class/net/<if>/device/driver; None for a link without a device."""
    speed_mbits: Optional[int]
    """/sys/class/net/<if>/speed, Mb/s; None when down or unknown (-1, EINVAL)."""
    carrier_changes: Optional[int]
    """/sys/class/net/<if>/carrier_changes since the link was made."""
    bond_mode: Optional[str]
    bond_members: List[str]


class Address(TypedDict):
    interface: str
    name: str
    """The name that getifaddrs gives it: the label for IPv4 (`eth0:1`), else the interface."""
    family: str
    """inet, inet6."""
    address: str
    prefix: int
    scope: str
    """global, link, host, site."""


class Facts(TypedDict):
    source: str
    links: List[Link]
    addresses: List[Address]


def collect(host: Host) -> Facts:
    must_be_ours(host)
    source, links, addresses = _read(host)
    for place, link in enumerate(links):
        link.update(
            _details(host, link) if place < MAX_DETAILED and link["kind"] not in ("veth", "dummy") else _NO_DETAILS
        )
    return {"source": source, "links": links, "addresses": addresses}  # type: ignore[typeddict-item]


_NO_DETAILS: Dict[str, Any] = {
    "driver": None,
    "speed_mbits": None,
    "carrier_changes": None,
    "bond_mode": None,
    "bond_members": [],
}


def _read(host: Host) -> Tuple[str, List[Dict[str, Any]], List[Dict[str, Any]]]:
    reasons = []
    for source, read in (("rtnetlink", _netlink), ("ip -j addr", _ip), ("/proc/net and /sys/class/net", _proc)):
        try:
            links, addresses = read(host)
            return source, links, addresses
        except (HostError, ValueError) as error:
            reasons.append(str(error))
    raise HostError("network interfaces", "; ".join(reasons))


def _netlink(host: Host) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    def question() -> Dict[str, Any]:
        links = rtnetlink.links()
        return {"links": links, "addresses": rtnetlink.addresses({link["index"]: link["name"] for link in links})}

    told = host.ask("rtnetlink links and addresses", question)
    return told["links"], told["addresses"]


def _ip(host: Host) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    shown = json.loads(host.run(["ip", "-j", "addr"]).out)
    return rtnetlink.from_ip_json(shown)


def _proc(host: Host) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """The last resort: names and flags from sysfs, IPv4 addresses matched to interfaces by their connected routes."""
    links: List[Dict[str, Any]] = []
    for name in host.list(NET):
        bits = host.number("%s/%s/flags" % (NET, name))
        if bits is None:
            continue
        state = _word(host, name, "operstate").upper() or "UNKNOWN"
        flags = [flag for flag, bit in rtnetlink.FLAGS if bits & bit]
        if "UP" in flags and state in ("UP", "UNKNOWN"):
            flags.append("RUNNING")  # the kernel works it out and keeps it out of this file
        links.append(
            {
                "index": host.number("%s/%s/ifindex" % (NET, name)),
                "name": name,
                "flags": flags,
                "mtu": host.number("%s/%s/mtu" % (NET, name)),
                "operstate": state,
                "mac": _word(host, name, "address").replace(":", ""),
                "kind": None,
                "lower": None,
                "master": None,
                "counters": {},
            }
        )
    links.sort(key=lambda link: link["index"] or 0)
    return links, [*_proc_ipv4(host), *_proc_ipv6(host)]


def _proc_ipv4(host: Host) -> List[Dict[str, Any]]:
    networks = []
    for line in host.read("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[2] == "00000000":
            networks.append((fields[0], int(fields[1], 16), int(fields[7], 16)))
    found = []
    for address in dict.fromkeys(LOCAL_ADDRESS.findall(host.read("/proc/net/fib_trie"))):
        number = struct.unpack("=I", socket.inet_aton(address))[0]
        name, mask = next(((name, mask) for name, network, mask in networks if number & mask == network), (None, 0))
        if address.startswith("127."):
            name, mask = "lo", 0xFF
        if name is not None:
            found.append(
                {
                    "interface": name,
                    "name": name,
                    "family": "inet",
                    "address": address,
                    "prefix": bin(mask).count("1"),
                    "scope": "host" if name == "lo" else "global",
                }
            )
    return found


def _proc_ipv6(host: Host) -> List[Dict[str, Any]]:
    found = []
    for line in (host.value("/proc/net/if_inet6") or "").splitlines():
        raw, _index, prefix, scope, _flags, name = line.split()
        word = {"00": "global", "20": "link", "10": "host", "40": "site"}.get(scope, scope)
        found.append(
            {
                "interface": name,
                "name": name,
                "family": "inet6",
                "scope": word,
                "prefix": int(prefix, 16),
                "address": socket.inet_ntop(socket.AF_INET6, bytes.fromhex(raw)),
            }
        )
    return found


def _word(host: Host, name: str, file: str) -> str:
    try:
        return host.value("%s/%s/%s" % (NET, name, file)) or ""
    except HostError:
        return ""


def _details(host: Host, link: Dict[str, Any]) -> Dict[str, Any]:
    base = "%s/%s" % (NET, link["name"])
    details: Dict[str, Any] = {
        **_NO_DETAILS,
        **{key: host.number("%s/%s" % (base, file)) for key, file in DETAILS.items()},
    }
    if details["speed_mbits"] is not None and details["speed_mbits"] <= 0:
        details["speed_mbits"] = None
    try:
        details["driver"] = host.link(base + "/device/driver").rpartition("/")[2]
    except HostError:
        pass
    if link["kind"] is None and details["driver"] is None:
        kind = re.search(r"^DEVTYPE=(\S+)", _word(host, link["name"], "uevent"), re.M)
        link["kind"] = kind.group(1) if kind else None
    mode = _word(host, link["name"], "bonding/mode")
    if mode:
        details.update(bond_mode=mode.split()[0], bond_members=_word(host, link["name"], "bonding/slaves").split())
    if not link["counters"]:
        link["counters"] = {
            name: value
            for name in rtnetlink.STATS
            for value in [host.number("%s/statistics/%s" % (base, name))]
            if value is not None
        }
    return details


PROBE = Probe("interfaces", "facts: network interfaces and addresses", None, collect)
