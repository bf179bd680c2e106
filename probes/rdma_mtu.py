"""The RDMA MTU is the same on all ports that will talk to each other, and the interfaces below agree.

RoCE takes the largest of 256, 512, 1024, 2048 and 4096 bytes that fits into the interface's MTU less 96 bytes of headers, so an
interface left at 1500 gives 1024. Two ends agree on the smaller, but a switch port between them does not take part: with one MTU
set differently small messages pass and large ones vanish.

Source: kernel include/rdma/ib_addr.h (iboe_get_mtu), /sys/class/net/<if>/mtu; `ibv_devinfo -v` for what the port really has.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import machine
from ncdiag.nccl.uneven import grouped
from ncdiag.nodeset import counted

HEADERS = 96  # bytes: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, checksum 4
SIZES = (4096, 2048, 1024, 512, 256)

_LINE = re.compile(r"\s*(hca_id|port|active_mtu):\s*(\S+)")


class Facts(TypedDict):
    """What the verbs library tells; empty where ibv_devinfo is missing."""

    active: Dict[str, int]  # `mlx5_0:1` -> bytes
    netdevs: Dict[str, int]  # interface -> bytes, /sys/class/net/<if>/mtu
    why: Optional[str]  # why ibv_devinfo told nothing


def collect(host: Host) -> Facts:
    facts: Facts = {"active": {}, "netdevs": {}, "why": None}
    for name in host.list("/sys/class/net"):
        mtu = host.number(f"/sys/class/net/{name}/mtu")
        if mtu:
            facts["netdevs"][name] = mtu
    try:
        output = host.run(["ibv_devinfo", "-v"], 5.0)
    except HostError as error:
        facts["why"] = str(error)
        return facts
    facts["active"] = parse_devinfo(output.out)
    if not facts["active"]:
        facts["why"] = (output.out + output.err).strip()[:200] or f"ibv_devinfo ended with {output.rc}"
    return facts


def parse_devinfo(text: str) -> Dict[str, int]:
    """`mlx5_0:1` -> active MTU in bytes."""
    found: Dict[str, int] = {}
    device, port = "", ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        if match.group(1) == "hca_id":
            device = match.group(2)
        elif match.group(1) == "port":
            port = match.group(2)
        elif match.group(2).isdecimal():
            found[f"{device}:{port}"] = int(match.group(2))
    return found


def from_netdev(mtu: int) -> Optional[int]:
    """The RDMA MTU that an interface of this MTU gives; None below 352."""
    return next((size for size in SIZES if size + HEADERS <= mtu), None)


class Seen(TypedDict):
    node: str
    port: str
    layer: str
    active: int
    shown: str  # `1024 (eth2 has 1500)`
    netdev: Optional[str]  # the interface below
    bytes: Optional[int]  # its MTU


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    seen: List[Seen] = []
    for node, facts in snapshot.each(PROBE.id):
        used = machine.used_ports(snapshot, node)
        if not used:
            yield skip("NCCL takes no RDMA port of this node", node, source="/sys/class/infiniband")
            continue
        known = [found for found in (_of(node, facts, one) for one in used) if found is not None]
        seen += known
        if len(known) < len(used):
            yield unknown(
                f"the MTU of {len(used) - len(known)} of {counted(len(used), 'port')} is not told: {facts['why'] or 'not listed'}",
                node,
                source="ibv_devinfo -v",
                remedy="install ibverbs-utils for ibv_devinfo",
            )
    yield from _compared(seen)


def _of(node: str, facts: Facts, one: machine.UsedPort) -> Optional[Seen]:
    netdev = next((name for name in one.port["netdevs"] if name in facts["netdevs"]), None)
    active = facts["active"].get(one.name)
    below = ""
    if one.port["link_layer"] == "Ethernet" and netdev is not None:
        below = f" ({netdev} has {facts['netdevs'][netdev]})"
        active = active or from_netdev(facts["netdevs"][netdev])
    if active is None:
        return None
    layer = one.port["link_layer"] or "Unknown"
    shown = f"{active}{below}"
    size = facts["netdevs"].get(netdev) if netdev and below else None
    return {
        "node": node,
        "port": one.name,
        "layer": layer,
        "active": active,
        "shown": shown,
        "netdev": netdev,
        "bytes": size,
    }


def _compared(seen: List[Seen]) -> Iterator[Finding]:
    for layer in sorted({one["layer"] for one in seen}):
        alike = [one for one in seen if one["layer"] == layer]
        sizes = Counter(one["active"] for one in alike)
        usual = max(sizes, key=lambda size: (sizes[size], size))
        for node, mine in grouped(alike, lambda one: one["node"]):
            odd = [one for one in mine if one["active"] != usual]
            if not odd:
                yield ok(
                    f"RDMA MTU {mine[0]['shown']} on {counted(len(mine), 'port')}",
                    node,
                    source="ibv_devinfo -v, /sys/class/net/*/mtu",
                )
            for one in odd:
                yield warn(
                    f"{one['port']}: RDMA MTU {one['shown']}, the other ports {usual}",
                    node,
                    source="ibv_devinfo -v, /sys/class/net/*/mtu",
                    device=one["port"].partition(":")[0],
                    observed=one["active"],
                    unit="bytes",
                    expected=usual,
                    cause="mtu-mismatch",
                    remedy=_remedy(one, next(other for other in alike if other["active"] == usual)),
                )


def _remedy(odd: Seen, usual: Seen) -> str:
    if odd["netdev"] is None or usual["bytes"] is None:
        return f"give the port the MTU of the others, {usual['active']}: by the subnet manager, or by the interface and its switch port"
    wanted = usual["bytes"]
    return (
        f"ip link set {odd['netdev']} mtu {wanted} on {odd['node']}, and the same on its switch port; check the path with "
        f"ping -M do -s {wanted - 28} to a peer"
    )


PROBE = Probe(
    "rdma-mtu",
    "The RDMA MTU is the same on all ports",
    judge,
    collect,
    needs=("rdma-devices", "nccl-environment", "nccl-conf-files"),
)
