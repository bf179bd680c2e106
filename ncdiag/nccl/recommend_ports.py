"""Which RDMA ports, GID index and traffic class the nodes should use; only what NCCL does not find by itself."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ncdiag.model import Snapshot
from ncdiag.nccl import gid as gid_rules
from ncdiag.nccl import machine
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.machine import UsedPort
from ncdiag.nccl.node import release, settings
from ncdiag.nccl.settings import integer
from ncdiag.nccl.version import dotted

Group = Tuple[str, float]
"""Link layer and rate in Gb/s: ports that belong together."""


def ports(snapshot: Snapshot) -> Iterator[Advice]:
    """NCCL_IB_HCA: the fastest kind of port that all nodes have, where there are others or where nodes differ."""
    active = {node: _active(snapshot, node) for node in snapshot.nodes}
    active = {node: found for node, found in active.items() if found}
    if not active or len(active) < len(snapshot.nodes):
        return
    common = set.intersection(*({_group(one) for one in found} for found in active.values()))
    if not common:
        return
    best = max(common, key=lambda group: (group[1], group[0]))
    chosen = {node: sorted(one.name for one in found if _group(one) == best) for node, found in active.items()}
    shared = set.intersection(*(set(names) for names in chosen.values()))
    everything = all(len(chosen[node]) == len(found) for node, found in active.items())
    alike = all(set(names) == shared for names in chosen.values())
    if everything and alike:
        yield from _unneeded(snapshot, chosen)
    elif shared and (alike or len({len(names) for names in chosen.values()}) > 1):
        yield _hca(ALL_NODES, sorted(shared), best, "the ports of one fabric that all nodes have")
    else:
        for node, names in chosen.items():
            yield _hca(node, names, best, "the ports of one fabric on this node; their names differ between nodes")


def _active(snapshot: Snapshot, node: str) -> List[UsedPort]:
    layers = ("InfiniBand", "Ethernet")
    return [
        one
        for one in machine.ports(snapshot, node)
        if one.port["state"] == "ACTIVE" and one.port["link_layer"] in layers
    ]


def _group(one: UsedPort) -> Group:
    return str(one.port["link_layer"]), float(one.port["rate_gbits_s"] or 0.0)


def _hca(node: str, names: Sequence[str], group: Group, what: str) -> Advice:
    why = f"{what}: {len(names)} x {group[0]} {group[1]:g} Gb/s"
    return Advice("NCCL_IB_HCA", "=" + ",".join(names), node, why, "/sys/class/infiniband of all nodes")


def _unneeded(snapshot: Snapshot, chosen: Mapping[str, List[str]]) -> Iterator[Advice]:
    """A filter that leaves something out although all ports are alike."""
    for node, names in chosen.items():
        value = machine.values(snapshot, node).get("NCCL_IB_HCA")
        used = {one.name for one in machine.used_ports(snapshot, node)}
        if value and set(names) - used:
            lost = ", ".join(sorted(set(names) - used))
            why = f"NCCL_IB_HCA={value} leaves {lost} out, although all {len(names)} active ports are of one kind"
            yield Advice("NCCL_IB_HCA", None, node, why, "/sys/class/infiniband", sure=False)


def gids(snapshot: Snapshot) -> Iterator[Advice]:
    """NCCL_IB_GID_INDEX only for NCCL before 2.21; an index that is set although NCCL would find it is to be unset."""
    wanted: Dict[str, Set[int]] = {}
    ipv6 = set()
    for node in snapshot.nodes:
        best = _recommended(snapshot, node)
        if best is None:
            return
        wanted[node] = {gid.index for gid in best}
        ipv6.add(all(gid.ipv4 is None for gid in best))
    wanted = {node: indexes for node, indexes in wanted.items() if indexes}
    if not wanted:
        return
    if all(_automatic(snapshot, node) for node in wanted):
        yield from _unset_index(snapshot, wanted)
        if ipv6 == {True}:
            why = "the RoCE interfaces have IPv6 addresses only, and NCCL looks for IPv4 unless told otherwise"
            yield Advice("NCCL_IB_ADDR_FAMILY", "AF_INET6", ALL_NODES, why, "GID tables of all nodes")
        return
    every = set.union(*wanted.values())
    if len(every) == 1:
        index = str(next(iter(every)))
        why = f"NCCL before 2.21 takes index 0; the RoCE v2 entry is at {index} on every port"
        yield Advice("NCCL_IB_GID_INDEX", index, ALL_NODES, why, "GID tables of all nodes")
        return
    for node, indexes in wanted.items():
        if len(indexes) == 1:
            why = f"NCCL before 2.21 takes index 0; the RoCE v2 entry is at {next(iter(indexes))} on this node's ports"
            yield Advice("NCCL_IB_GID_INDEX", str(next(iter(indexes))), node, why, "GID tables of all nodes")


def _automatic(snapshot: Snapshot, node: str) -> bool:
    version = release(snapshot, node)
    return version is None or version >= gid_rules.AUTOMATIC_SINCE


def _recommended(snapshot: Snapshot, node: str) -> Optional[List[gid_rules.Gid]]:
    """The entry of each RoCE port that NCCL takes; None where some port has none, or the tables were not read."""
    tables = snapshot.facts(node, "roce-gid")
    if tables is None:
        return None
    used = {(one.device["name"], one.port["number"]) for one in machine.used_ports(snapshot, node)}
    found = []
    for table in tables:
        if (table["device"], table["port"]) in used:
            best = gid_rules.recommend(gid_rules.from_facts(table["entries"]))
            if best is None:
                return None
            found.append(best)
    return found


def _unset_index(snapshot: Snapshot, wanted: Mapping[str, Set[int]]) -> Iterator[Advice]:
    for node, indexes in wanted.items():
        known = (settings(snapshot, node) or {}).get("NCCL_IB_GID_INDEX")
        if known is None or (integer(known.value) or 0) < 0:
            continue
        version = release(snapshot, node)
        by = f"NCCL {dotted(version)}" if version else "NCCL from 2.21 on"
        right = {integer(known.value)} == indexes
        why = f"{by} finds the index itself; {known.value} is {'right today' if right else 'not where the RoCE v2 entry is'}"
        yield Advice("NCCL_IB_GID_INDEX", None, node, why, known.origin)


def traffic_class(snapshot: Snapshot) -> Iterator[Advice]:
    """NCCL_IB_TC where one priority has PFC everywhere and nothing else sets the class."""
    priorities: Set[int] = set()
    told: Set[int] = set()
    for node in snapshot.nodes:
        facts = snapshot.facts(node, "roce-lossless")
        used = [one for one in machine.used_ports(snapshot, node) if one.port["link_layer"] == "Ethernet"]
        if facts is None or not used or any("=" in text for text in facts["traffic_class"].values()):
            return
        if integer(machine.values(snapshot, node).get("NCCL_IB_TC", "")):
            return
        names = {name for one in used for name in one.port["netdevs"]}
        for name, card in facts["cards"].items():
            if name in names:
                priorities |= {priority for priority in card["pfc"] or [] if priority > 0}
                table = (card.get("dcb") or {}).get("dscp") or {}
                told |= {int(dscp) for dscp, priority in table.items() if priority in priorities}
    if len(priorities) != 1:
        return
    priority = next(iter(priorities))
    dscp = (26 if 26 in told else min(told)) if told else 8 * priority + 2
    how = (
        f"the cards put DSCP {dscp} in it"
        if told
        else f"with cards that trust DSCP and the default table, DSCP {dscp} is in it (8 times the priority, plus 0 to 7)"
    )
    why = f"PFC protects priority {priority} only, and NCCL sends in class 0; {how}: check it against the switches"
    source = "DCB and pause counters of the RoCE interfaces"
    yield Advice("NCCL_IB_TC", str(dscp << 2), ALL_NODES, why, source, sure=False)
