"""What a snapshot says about one node, as NCCL's rules need it. Pure; travels to nodes."""

from __future__ import annotations

from typing import Dict, List, Optional, Set, Tuple

from ncdiag.model import Snapshot
from ncdiag.nccl import environment
from ncdiag.nccl.environment import Setting
from ncdiag.nccl.interfaces import Address, local_addresses
from ncdiag.nccl.reach import useless
from ncdiag.nccl.version import Version, parse_version


def settings(snapshot: Snapshot, node: str) -> Optional[Dict[str, Setting]]:
    """The NCCL variables that hold there, parameter files included; None when the environment was not read."""
    found: Optional[Dict[str, Setting]] = snapshot.once(("settings", node), lambda: _settings(snapshot, node))
    return found


def _settings(snapshot: Snapshot, node: str) -> Optional[Dict[str, Setting]]:
    environ = (snapshot.facts(node, "nccl-environment") or {}).get("environ")
    if environ is None:
        return None
    return environment.effective(environ, (snapshot.facts(node, "nccl-conf-files") or {}).get("files", ()))


def release(snapshot: Snapshot, node: str) -> Optional[Version]:
    """The NCCL of that node: of the library found there, else what the plan says; None when neither tells."""
    libraries = (snapshot.facts(node, "nccl-library") or {}).get("libraries") or [{}]
    told = libraries[0].get("version") or snapshot.plan.nccl_version
    return parse_version(told) if told else None


def addresses(snapshot: Snapshot, node: str) -> List[Address]:
    """Its addresses in getifaddrs order; empty when they were not read."""
    found: List[Address] = snapshot.once(
        ("addresses", node), lambda: local_addresses(snapshot.facts(node, "interfaces"))
    )
    return found


_INNER = ("docker", "virbr", "cni", "br-", "veth")
"""Interfaces of that kind lead to containers and virtual machines of the node itself."""


def to_type(snapshot: Snapshot, node: str) -> Tuple[str, str]:
    """The node's own address and its interface, as they are typed: by name where only one can be meant, else `<one of …>`."""
    usable = [one for one in addresses(snapshot, node) if not useless(one.address) and not one.name.startswith(_INNER)]
    chosen = [one for one in usable if ":" not in one.address] or usable
    if len(chosen) == 1:
        return chosen[0].address, chosen[0].name
    if not chosen:
        return "<this node's address>", "<its interface>"
    names = dict.fromkeys(one.name for one in chosen)
    where = "<one of %s>" % ", ".join(names) if len(names) > 1 else chosen[0].name
    return "<one of %s>" % ", ".join(one.address for one in chosen), where


def several(snapshot: Snapshot) -> bool:
    """Whether the engine is to run on more than one node, as far as that is known."""
    return len(snapshot.nodes) > 1 or (snapshot.plan.nodes or 1) > 1


class Networks:
    """Which nodes have an address in which network, looked up once for all of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.several = several(snapshot)
        self._members: Dict[str, Set[str]] = {}
        self._nodes: Dict[str, None] = {}
        for node in snapshot.nodes:
            for address in addresses(snapshot, node):
                self._nodes[node] = None
                self._members.setdefault(address.network, set()).add(node)

    def without(self, network: str) -> List[str]:
        """Nodes that have addresses, but none whose network is `network`."""
        members = self._members.get(network, set())
        return [] if len(members) == len(self._nodes) else [node for node in self._nodes if node not in members]
