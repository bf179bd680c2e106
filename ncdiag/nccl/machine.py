"""What the facts of one node say of its ports and its topology, as NCCL will take them. Pure; travels to nodes."""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from ncdiag.model import Snapshot
from ncdiag.nccl import gpudirect, hca, topology_live
from ncdiag.nccl.node import release, settings
from ncdiag.nccl.rules import Rules, rules_for
from ncdiag.nccl.settings import Settings, settings_from
from ncdiag.nccl.topology import Topology
from ncdiag.nccl.topology_view import View, view
from ncdiag.nccl.version import Version


class UsedPort(NamedTuple):
    """Facts of a device and of one port of it (`rdma-devices`)."""

    device: Mapping[str, Any]
    port: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.device['name']}:{self.port['number']}"

    @property
    def for_filter(self) -> hca.Port:
        layer = self.port["link_layer"] or "Unknown"
        return hca.Port(self.device["name"], self.port["number"], self.port["state"] == "ACTIVE", layer)


def values(snapshot: Snapshot, node: str) -> Dict[str, str]:
    """NCCL's variables as they hold there, files included; empty where the environment was not read."""
    found: Dict[str, str] = snapshot.once(
        ("values", node), lambda: {name: one.value for name, one in (settings(snapshot, node) or {}).items()}
    )
    return found


def ports(snapshot: Snapshot, node: str) -> Iterator[UsedPort]:
    """All of the node's ports."""
    for device in (snapshot.facts(node, "rdma-devices") or {}).get("devices", []):
        for port in device["ports"]:
            yield UsedPort(device, port)


def used_ports(snapshot: Snapshot, node: str) -> List[UsedPort]:
    """The active ports that pass NCCL_IB_HCA; empty with NCCL_IB_DISABLE=1."""
    found: List[UsedPort] = snapshot.once(("used ports", node), lambda: _used_ports(snapshot, node))
    return found


def _used_ports(snapshot: Snapshot, node: str) -> List[UsedPort]:
    environ = values(snapshot, node)
    if hca.disabled(environ):
        return []
    every = list(ports(snapshot, node))
    selection = hca.select([one.for_filter for one in every], environ.get("NCCL_IB_HCA"), release(snapshot, node))
    taken = {(port.device, port.number) for port in selection.taken}
    return [one for one in every if (one.device["name"], one.port["number"]) in taken]


def topology(
    snapshot: Snapshot, node: str, extra: Optional[Mapping[str, str]] = None, judge_by: Optional[Version] = None
) -> Optional[View]:
    """The node as NCCL will see it; None where the PCI tree was not read.

    `extra` goes over the node's own variables; `judge_by` over its NCCL version. Nodes that are built alike share one View,
    whose GUIDs are those of the first.
    """
    if extra or judge_by:
        return _topology(snapshot, node, extra, judge_by)
    found: Optional[View] = snapshot.once(("topology", node), lambda: _topology(snapshot, node, None, None))
    return found


def _topology(
    snapshot: Snapshot, node: str, extra: Optional[Mapping[str, str]], judge_by: Optional[Version]
) -> Optional[View]:
    pci = snapshot.facts(node, "pci-devices")
    if pci is None:
        return None
    version = judge_by or release(snapshot, node)
    environ = {**values(snapshot, node), **(extra or {})}
    allowed = gpudirect.drivers_allow(snapshot.facts(node, "gpudirect"))
    rdma, gpus = snapshot.facts(node, "rdma-devices"), snapshot.facts(node, "gpus")
    rules = rules_for(version)
    built = topology_live.build(pci, rdma, gpus, environ, version, allowed)
    return _alike(_Machine(built, rules, settings_from(environ, rules).settings))


class _Machine:
    """What a View is made of; equal where two nodes differ in their GUIDs only."""

    def __init__(self, built: Topology, rules: Rules, chosen: Settings) -> None:
        self.parts = (built, rules, chosen)
        seen: Dict[str, int] = {}
        alike = _GUID.sub(lambda match: "guid=%d" % seen.setdefault(match.group(1), len(seen)), repr(built))
        self._key = (alike, rules, chosen)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Machine) and self._key == other._key


_GUID = re.compile(r"guid='([^']*)'")


@functools.lru_cache(maxsize=64)
def _alike(machine: _Machine) -> View:
    return view(*machine.parts)
