"""The topologies of a snapshot's nodes, nodes that are built alike once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncdiag.model import Snapshot
from ncdiag.nccl.machine import topology
from ncdiag.nccl.topology_view import View, as_data


def machines_of(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    """As `topology_view.as_data` has them, with `name` (of the first) and `nodes`; none where no PCI tree was read."""
    alike: dict[int, tuple[View, list[str]]] = {}
    for node in snapshot.nodes:
        shown = topology(snapshot, node)
        if shown is not None and (shown.gpus or shown.nets):
            alike.setdefault(id(shown), (shown, []))[1].append(node)
    return [{"name": nodes[0], "nodes": nodes, **as_data(shown)} for shown, nodes in alike.values()]
