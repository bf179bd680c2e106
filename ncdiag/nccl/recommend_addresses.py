"""Which interface and address the nodes should use for their TCP connections: one network that all nodes share."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

from ncdiag.model import Snapshot
from ncdiag.nccl import addressing
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.interfaces import Address, natures
from ncdiag.nccl.node import addresses as addresses_of
from ncdiag.nccl.reach import useless, useless_words

SOURCE = "interfaces and addresses of all nodes, default routes"
IFNAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def addresses(snapshot: Snapshot) -> Iterator[Advice]:
    """For one node only what it would need with others: alone, the loopback or any interface will do. Nothing where no network is shared."""
    nodes = {node: _candidates(snapshot, node) for node in snapshot.nodes}
    if len(nodes) < 2:
        yield from _with_others(snapshot, nodes)
    if len(nodes) < 2 or not all(nodes.values()):
        return
    network = _best(snapshot, nodes)
    if network is None:
        return
    chosen = {node: next(one for one in found if one.network == network) for node, found in nodes.items()}
    yield from _names(chosen, network)
    for node, address in chosen.items():
        why = (
            f"vLLM otherwise advertises the source of its default route; {network} is shared by all {len(nodes)} nodes"
        )
        yield Advice("VLLM_HOST_IP", address.address, node, why, SOURCE)


def _with_others(snapshot: Snapshot, nodes: Mapping[str, List[Address]]) -> Iterator[Advice]:
    """gloo goes by the host name: where that leads to the loopback it has to be told its interface, once there are peers."""
    for node, found in nodes.items():
        name = snapshot.facts(node, "host-name")
        if not found or not name or name["failed"] == "not-asked":
            continue
        told = addressing.gloo(addresses_of(snapshot, node), {}, name, name["name"])
        if told.address is not None and useless(told.address):
            link = (_first_on_route(snapshot, node, found) or found[0]).name.partition(":")[0]
            why = f"this node's name {name['name']} leads gloo to {told.address}, {useless_words(told.address)}"
            when = "with more nodes than this one"
            yield Advice("GLOO_SOCKET_IFNAME", link, node, why, "host name, interfaces", sure=False, when=when)


def _first_on_route(snapshot: Snapshot, node: str, found: List[Address]) -> Optional[Address]:
    names = _default_interfaces(snapshot, node)
    return next((one for one in found if one.name.partition(":")[0] in names), None)


def _candidates(snapshot: Snapshot, node: str) -> List[Address]:
    """Running IPv4 addresses on links that reach other machines."""
    facts: Optional[Mapping[str, Any]] = snapshot.facts(node, "interfaces")
    if facts is None:
        return []
    kinds = natures(facts)
    return [
        one
        for one in addresses_of(snapshot, node)
        if one.running
        and one.family == "inet"
        and not useless(one.address)
        and kinds.get(one.name.partition(":")[0]) is None
    ]


def _best(snapshot: Snapshot, nodes: Mapping[str, List[Address]]) -> Optional[str]:
    """The shared network that carries the default route on most nodes, else the fastest one, else the first."""
    shared = [
        one.network
        for one in next(iter(nodes.values()))
        if all(sum(other.network == one.network for other in found) == 1 for found in nodes.values())
    ]
    if not shared:
        return None

    def order(network: str) -> tuple[int, int]:
        on_route = speed = 0
        for node, found in nodes.items():
            name = next(one.name for one in found if one.network == network).partition(":")[0]
            on_route += name in _default_interfaces(snapshot, node)
            speed += _speed(snapshot, node, name)
        return -on_route, -speed

    return min(shared, key=order)


def _default_interfaces(snapshot: Snapshot, node: str) -> List[str]:
    facts = snapshot.facts(node, "default-route") or {"routes": []}
    return [route["interface"] for route in facts["routes"] if route["bits"] == 0]


def _speed(snapshot: Snapshot, node: str, name: str) -> int:
    links = (snapshot.facts(node, "interfaces") or {"links": []})["links"]
    return next((link["speed_mbits"] or 0 for link in links if link["name"] == name), 0)


def _names(chosen: Mapping[str, Address], network: str) -> Iterator[Advice]:
    names: Dict[str, str] = {node: address.name.partition(":")[0] for node, address in chosen.items()}
    for variable in IFNAMES:
        sign = "=" if variable.startswith("NCCL") else ""  # NCCL takes prefixes unless told otherwise, gloo exact names
        if len(set(names.values())) == 1:
            name = next(iter(names.values()))
            why = f"{network} on {name} is the network that all {len(names)} nodes share; without it the first interface found counts"
            yield Advice(variable, sign + name, ALL_NODES, why, SOURCE)
            continue
        for node, name in names.items():
            why = f"{network}, which all nodes share, is on {name} here; the name differs between nodes"
            yield Advice(variable, sign + name, node, why, SOURCE)
