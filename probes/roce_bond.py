"""RoCE over a bond uses a mode that works, and all its members are up.

The card offers one RDMA device for a bond (RoCE LAG) in the modes active-backup, balance-xor and 802.3ad only. In other modes, or
with the RDMA device still on a member, connections fail or use one link. A dead member halves the bandwidth without a message.

Source: /sys/class/net/<bond>/bonding; mlx5 RoCE LAG (kernel drivers/net/ethernet/mellanox/mlx5/core/lag).
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping

from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import machine
from ncdiag.nodeset import counted

MODES = ("active-backup", "balance-xor", "802.3ad")


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, _ in snapshot.each("rdma-devices"):
        used = [one for one in machine.used_ports(snapshot, node) if one.port["link_layer"] == "Ethernet"]
        facts = snapshot.facts(node, "interfaces")
        idle = [one for one in machine.ports(snapshot, node) if one.port["link_layer"] == "Ethernet" and _idle(one)]
        if not used and not idle:
            yield skip("NCCL takes no RoCE port of this node", node, source="/sys/class/infiniband")
        elif facts is None:
            yield unknown("the interfaces were not read", node, source="/sys/class/net")
        else:
            links = {link["name"]: link for link in facts["links"]}
            dead = list(_dead(node, idle, links))
            yield from dead
            yield from _node(node, used, links, bool(dead))


def _idle(one: machine.UsedPort) -> bool:
    return "ACTIVE" not in str(one.port["state"])


def _dead(node: str, idle: list[machine.UsedPort], links: Dict[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Ports that are down because no member of their bond is up."""
    for one in idle:
        for name in one.port["netdevs"]:
            members = links.get(name, {}).get("bond_members") or []
            down = [member for member in members if "RUNNING" not in links.get(member, {"flags": []})["flags"]]
            if members and len(down) == len(members):
                yield warn(
                    f"{one.name} is down: no member of {name} is up ({', '.join(members)})",
                    node,
                    source=f"/sys/class/net/{name}/bonding",
                    device=one.device["name"],
                    observed=down,
                    cause="ib-link-or-hca-fault",
                    remedy="check cables, optics and switch ports of the members",
                )


def _node(
    node: str, used: list[machine.UsedPort], links: Dict[str, Mapping[str, Any]], told: bool
) -> Iterator[Finding]:
    """The bonds below ports that work; `told`: something was said of this node's bonds already."""
    bonds = int(told)
    for one in used:
        for name in one.port["netdevs"]:
            link = links.get(name)
            if link is None:
                continue
            if link["bond_mode"]:
                bonds += 1
                yield from _bond(node, one.name, name, link, links)
            elif links.get(link["master"] or "", {}).get("bond_mode") and len(one.port["netdevs"]) == 1:
                bonds += 1
                yield warn(
                    f"{one.name} is on {name}, a member of {link['master']}: its addresses are the bond's, the device is not",
                    node,
                    source=f"/sys/class/net/{name}/master",
                    device=one.device["name"],
                    observed=name,
                    expected=f"an RDMA device of {link['master']}",
                    cause="roce-over-bond",
                    remedy="put both ports of one card into the bond before the RDMA driver is loaded, or use the ports without bond",
                )
    if not bonds:
        yield skip("no bond below the RoCE ports", node, source="/sys/class/net")


def _bond(
    node: str, port: str, name: str, link: Mapping[str, Any], links: Dict[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    source = f"/sys/class/net/{name}/bonding"
    members = link["bond_members"]
    down = [member for member in members if "RUNNING" not in links.get(member, {"flags": []})["flags"]]
    if link["bond_mode"] not in MODES:
        yield warn(
            f"{port} runs over {name} in mode {link['bond_mode']}, which RoCE does not support",
            node,
            source=source,
            device=port.partition(":")[0],
            observed=link["bond_mode"],
            expected=", ".join(MODES),
            cause="roce-over-bond",
            remedy="set the bond to 802.3ad or active-backup, or use the ports without bond",
        )
    if down:
        yield warn(
            f"{port} runs over {name}, whose member {', '.join(down)} is down: {len(members) - len(down)} of {counted(len(members), 'link')}",
            node,
            source=source,
            device=port.partition(":")[0],
            observed=down,
            cause="ib-link-or-hca-fault",
            remedy="check cable, optics and switch port of that member",
        )
    elif link["bond_mode"] in MODES:
        yield ok(f"{port} over {name}: {link['bond_mode']}, {counted(len(members), 'member')} up", node, source=source)


PROBE = Probe(
    "roce-bond",
    "RoCE over a bond has a mode that works and all members up",
    judge,
    needs=("rdma-devices", "interfaces", "nccl-environment", "nccl-conf-files"),
)
