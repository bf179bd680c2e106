"""The RoCE addresses of all nodes are in the same networks.

Two cards whose GIDs are in different networks connect only through a router that passes RoCE v2; without one the connection is set up
over TCP, looks fine, and then nothing arrives. A slip in one node's addresses shows as a network that no other node has. Rails with a
network each are fine as long as every node has them all.

Source: GID tables (probe roce-gid) and the addresses of the interfaces below; NCCL's choice of index as in net_ib.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Set

from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import gid as gids
from ncdiag.nccl import machine
from ncdiag.nccl.node import addresses, release
from ncdiag.nodeset import counted

SOURCE = "GID tables and addresses of all nodes"
SHOWN = 4  # networks and ports that a summary names


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    networks: Dict[str, Dict[str, str]] = {}
    for node, _ in snapshot.each("roce-gid"):
        chosen, mine = taken(snapshot, node), {}
        for port, choice in chosen.items():
            network = network_of(snapshot, node, choice)
            if network is not None:
                mine[port] = network
        if not chosen:
            yield skip("NCCL takes no RoCE port of this node", node, source=SOURCE)
        elif not mine:
            yield unknown("no RoCE port has a GID whose network is known", node, source=SOURCE)
        else:
            networks[node] = mine
    if len(networks) == 1:
        yield skip("only one node has RoCE addresses to compare", next(iter(networks)), source=SOURCE)
    elif networks:
        yield from _compared(networks)


def taken(snapshot: Snapshot, node: str) -> Dict[str, gids.Choice]:
    """`mlx5_0:1` -> what NCCL takes there."""
    used = {one.name for one in machine.used_ports(snapshot, node)}
    environ, version = machine.values(snapshot, node), release(snapshot, node)
    found = {}
    for table in snapshot.facts(node, "roce-gid"):
        name = f"{table['device']}:{table['port']}"
        if name in used:
            found[name] = gids.choose(gids.from_facts(table["entries"]), "Ethernet", environ, version)
    return found


def network_of(snapshot: Snapshot, node: str, choice: gids.Choice) -> Optional[str]:
    """`192.0.2.0/24` of the interface that has the GID's address; None where that is not known, or link-local."""
    if choice.gid is None or not choice.gid.usable:
        return None
    address = str(choice.gid.ipv4 or choice.gid.address)
    return next((one.network for one in addresses(snapshot, node) if one.address == address), None)


def _compared(networks: Dict[str, Dict[str, str]]) -> Iterator[Finding]:
    nodes: Dict[str, Set[str]] = {}
    for node, mine in networks.items():
        for network in mine.values():
            nodes.setdefault(network, set()).add(node)
    shared = [network for network in sorted(nodes, key=lambda one: (-len(nodes[one]), one)) if len(nodes[network]) > 1]
    for node, mine in networks.items():
        lone = {port: network for port, network in mine.items() if network not in shared}
        if not shared:
            yield skip(
                "every node has networks of its own: a routed fabric, whose routers cannot be seen from here",
                node,
                source=SOURCE,
            )
        elif lone:
            yield _apart(node, lone, shared)
        else:
            yield ok(f"{counted(len(mine), 'RoCE port')} in networks that other nodes share", node, source=SOURCE)


def _apart(node: str, lone: Dict[str, str], shared: List[str]) -> Finding:
    shown = ", ".join(f"{port} in {network}" for port, network in sorted(lone.items())[:SHOWN])
    return warn(
        f"{shown}: no other node has a RoCE address there; the others are in {', '.join(shared[:SHOWN])}",
        node,
        source=SOURCE,
        observed=sorted(set(lone.values())),
        expected=shared,
        cause="roce-gid-wrong",
        remedy="give the interface an address in the others' network, or see that a router passes RoCE v2 (UDP 4791) between them",
    )


PROBE = Probe(
    "roce-network",
    "The RoCE addresses of all nodes are in the same networks",
    judge,
    needs=("roce-gid", "rdma-devices", "interfaces", "nccl-environment", "nccl-conf-files"),
)
