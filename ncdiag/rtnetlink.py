"""Links, addresses and routes from the kernel itself, in the order in which getifaddrs(3) gives them. Needs no tool. Travels to nodes.

The facts have the same shape as those made from `ip -j addr` (see `from_ip_json`), so that a judge need not know which it was.
Source: Linux include/uapi/linux/{rtnetlink,if_link,if_addr}.h; glibc sysdeps/unix/sysv/linux/ifaddrs.c for the order and names.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Dict, Iterator, List, Sequence, Tuple

RTM_GETLINK, RTM_GETADDR, RTM_GETROUTE = 18, 22, 26
NLM_F_REQUEST, NLM_F_DUMP, NLM_F_DUMP_INTR = 0x1, 0x300, 0x10
NLMSG_ERROR, NLMSG_DONE = 2, 3
NETLINK_NETFILTER = 12
NFT_GETTABLE = 10 << 8 | 1
"""NFNL_SUBSYS_NFTABLES and NFT_MSG_GETTABLE (include/uapi/linux/netfilter)."""
TIMEOUT_S = 2.0

FLAGS = (
    ("UP", 0x1),
    ("LOOPBACK", 0x8),
    ("POINTOPOINT", 0x10),
    ("RUNNING", 0x40),
    ("NOARP", 0x80),
    ("SLAVE", 0x800),
    ("LOWER_UP", 0x10000),
)
"""The flags of a link that are kept, with their bits (include/uapi/linux/if.h)."""

OPERSTATES = ("UNKNOWN", "NOTPRESENT", "DOWN", "LOWERLAYERDOWN", "TESTING", "DORMANT", "UP")
SCOPES = {0: "global", 200: "site", 253: "link", 254: "host", 255: "nowhere"}
STATS = (
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
)
"""The first fields of struct rtnl_link_stats64, in order; each 8 bytes."""


def dump(
    kind: int, header: struct.Struct, family: int = socket.AF_UNSPEC, protocol: int = 0
) -> Iterator[Tuple[Tuple[Any, ...], Dict[int, bytes]]]:
    """`(fields of the header, attributes)` of every message of one dump; `protocol` 0 is NETLINK_ROUTE. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as link:
        link.settimeout(TIMEOUT_S)
        body = struct.pack("=B", family) + bytes(header.size - 1)
        link.sendto(struct.pack("=IHHII", 16 + len(body), kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + body, (0, 0))
        while True:
            data = link.recv(1 << 18)
            at = 0
            while at + 16 <= len(data):
                length, message, _flags, _seq, _pid = struct.unpack_from("=IHHII", data, at)
                if message == NLMSG_DONE:
                    return
                if message == NLMSG_ERROR:
                    number = -struct.unpack_from("=i", data, at + 16)[0]
                    raise OSError(number, "the kernel refused the netlink dump (errno %d)" % number)
                yield header.unpack_from(data, at + 16), attributes(data[at + 16 + _align(header.size) : at + length])
                at += _align(max(length, 16))


def _align(length: int) -> int:
    return (length + 3) & ~3


def attributes(data: bytes) -> Dict[int, bytes]:
    """Type -> value of a run of netlink attributes."""
    found: Dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[at + 4 : at + length]
        at += _align(length)
    return found


def _text(value: bytes) -> str:
    return value.split(b"\0")[0].decode("utf-8", "backslashreplace")


def links() -> List[Dict[str, Any]]:
    """Every link, by index. Raises OSError."""
    found = []
    for (_family, _type, index, flags, _change), values in dump(RTM_GETLINK, struct.Struct("=BxHiII")):
        info = attributes(values.get(18, b""))
        state = values.get(16, b"\0")[0]
        found.append(
            {
                "index": index,
                "name": _text(values.get(3, b"")),
                "flags": [name for name, bit in FLAGS if flags & bit],
                "mtu": _number(values.get(4)),
                "operstate": OPERSTATES[state] if state < len(OPERSTATES) else "UNKNOWN",
                "mac": values.get(1, b"").hex(),
                "kind": _text(info.get(1, b"")) or None,
                "lower_index": _number(values.get(5)),
                "master_index": _number(values.get(10)),
                "counters": _stats(values.get(23, b"")),
            }
        )
    names = {link["index"]: link["name"] for link in found}
    for link in found:
        lower, master = link.pop("lower_index"), link.pop("master_index")
        link["lower"] = names.get(lower) if lower != link["index"] else None
        link["master"] = names.get(master)
    return found


def _number(value: Any) -> Any:
    return struct.unpack("=I", value)[0] if value is not None and len(value) == 4 else None


def _stats(value: bytes) -> Dict[str, int]:
    numbers = struct.unpack_from("=%dQ" % min(len(STATS), len(value) // 8), value)
    return {name: numbers[place] for place, name in enumerate(STATS[: len(numbers)])}


def addresses(names: Dict[int, str]) -> List[Dict[str, Any]]:
    """Every address in getifaddrs order: all IPv4 ones, then the IPv6 ones, each by link. `names`: link index -> name. Raises OSError."""
    found = []
    for (family, prefix, _flags, scope, index), values in dump(RTM_GETADDR, struct.Struct("=BBBBi")):
        raw = values.get(2, values.get(1))
        if raw is None or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        interface = names.get(index, str(index))
        found.append(
            {
                "interface": interface,
                "name": _text(values[3]) if 3 in values else interface,
                "family": "inet" if family == socket.AF_INET else "inet6",
                "address": socket.inet_ntop(family, raw),
                "prefix": prefix,
                "scope": SCOPES.get(scope, str(scope)),
            }
        )
    return found


def routes(limit: int = 4000) -> List[Dict[str, Any]]:
    """Unicast routes of the main table (and of others, named by number), at most `limit`. Raises OSError."""
    names = {link["index"]: link["name"] for link in links()}
    found: List[Dict[str, Any]] = []
    for (family, bits, table, kind), values in dump(RTM_GETROUTE, struct.Struct("=BBxxBxxB4x")):
        table = _number(values.get(15)) or table
        if kind != 1 or table == 255 or family not in (socket.AF_INET, socket.AF_INET6) or len(found) >= limit:
            continue
        hop = values if 4 in values else _first_hop(values.get(9, b""))
        found.append(
            {
                "family": "inet" if family == socket.AF_INET else "inet6",
                "table": table,
                "bits": bits,
                "to": _address(family, values.get(1)) or ("0.0.0.0" if family == socket.AF_INET else "::"),
                "gateway": _address(family, hop.get(5)),
                "interface": names.get(_number(hop.get(4)) or 0),
                "source": _address(family, values.get(7)),
                "metric": _number(values.get(6)) or 0,
            }
        )
    return found


def _address(family: int, raw: Any) -> Any:
    return socket.inet_ntop(family, raw) if raw is not None else None


def _first_hop(data: bytes) -> Dict[int, bytes]:
    """The first next hop of a multipath route (struct rtnexthop: length, flags, hops, interface)."""
    if len(data) < 8:
        return {}
    length = struct.unpack_from("=H", data)[0]
    return {**attributes(data[8:length]), 4: data[4:8]}


def filter_tables() -> List[str]:
    """Names of the nftables tables of this network namespace; empty when no rule exists. Raises OSError (EPERM without privilege)."""
    return [
        _text(values.get(1, b""))
        for _header, values in dump(NFT_GETTABLE, struct.Struct("=BBH"), protocol=NETLINK_NETFILTER)
    ]


def from_ip_json(shown: Sequence[Dict[str, Any]]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    """`(links, addresses)` from what `ip -j addr` prints. It hides RUNNING and shows NO-CARRIER for an UP link without it."""
    found, local = [], []
    for link in shown:
        if "ifname" not in link:
            continue
        told = link.get("flags", [])
        flags = [name for name, _bit in FLAGS if name in told]
        if "UP" in told and "NO-CARRIER" not in told:
            flags.append("RUNNING")
        name = link["ifname"]
        found.append(
            {
                "index": link.get("ifindex"),
                "name": name,
                "flags": flags,
                "mtu": link.get("mtu"),
                "operstate": str(link.get("operstate", "UNKNOWN")).upper(),
                "mac": str(link.get("address", "")).replace(":", ""),
                "kind": link.get("linkinfo", {}).get("info_kind"),
                "lower": link.get("link"),
                "master": link.get("master"),
                "counters": {},
            }
        )
        for address in link.get("addr_info", []):
            if "local" in address:
                local.append(
                    {
                        "interface": name,
                        "name": address.get("label") or name,
                        "family": address.get("family"),
                        "address": address["local"],
                        "prefix": address.get("prefixlen"),
                        "scope": address.get("scope"),
                    }
                )
    return found, sorted(local, key=lambda address: address["family"] != "inet")
