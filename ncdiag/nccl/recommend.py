"""The settings that this cluster needs, and those to unset, each with its reason; derived from the facts of its nodes.

Few settings are the best: what NCCL finds by itself is not repeated, because a copied value is wrong on the next machine.
Pure; travels to nodes. Rules by topic: `recommend_ports` (NCCL_IB_HCA, GID, traffic class), `recommend_addresses` (interfaces).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterator, List

from ncdiag.model import Snapshot
from ncdiag.nccl import gpudirect, hca, machine
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.node import release, settings
from ncdiag.nccl.recommend_addresses import addresses
from ncdiag.nccl.recommend_ports import gids, ports, traffic_class
from ncdiag.nccl.rules import resolve_level, rules_for
from ncdiag.nccl.settings import integer

NEEDS = (
    "interfaces", "default-route", "rdma-devices", "roce-gid", "roce-lossless", "pci-devices", "gpus", "gpudirect",
    "nccl-environment", "nccl-conf-files", "nccl-library", "host-name",
)  # fmt: skip
"""Probes whose facts are looked at; a missing one only means that nothing is said of its topic."""


def recommend(snapshot: Snapshot) -> List[Advice]:
    """Settings first, then what to unset; by name, settings for all nodes before those of single ones."""
    found = [
        *addresses(snapshot),
        *ports(snapshot),
        *gids(snapshot),
        *traffic_class(snapshot),
        *_gdr_level(snapshot),
        *_left_on(snapshot),
    ]
    return sorted(found, key=lambda one: (one.value is None, one.name, one.node != ALL_NODES, one.node))


def for_node(advice: List[Advice], node: str) -> Dict[str, str]:
    """NAME -> value of one node, without what is only worth a try."""
    return {
        one.name: one.value for one in advice if one.value is not None and one.sure and one.node in (ALL_NODES, node)
    }


def to_unset(advice: List[Advice], node: str) -> List[str]:
    return sorted({one.name for one in advice if one.value is None and one.node in (ALL_NODES, node)})


def _gdr_level(snapshot: Snapshot) -> Iterator[Advice]:
    """Only where nothing but the distance keeps GPUDirect off, and that distance is one host bridge."""
    wanted = set()
    for node in snapshot.nodes:
        shown = machine.topology(snapshot, node)
        facts = snapshot.facts(node, "gpudirect")
        if shown is None or not shown.gpus or facts is None:
            return
        value = machine.values(snapshot, node).get("NCCL_NET_GDR_LEVEL")
        if value is not None:
            yield from _level_spelling(snapshot, node, value)
        reasons = [reason for one in shown.gpus for nic in one.own for reason in nic.gdr.reasons]
        if not reasons or gpudirect.ways(facts).possible is not True or _hindered(snapshot, node):
            return
        far = Counter(nic.distance for one in shown.gpus for nic in one.own)
        wanted.add(far.most_common(1)[0][0] if all(reason.startswith("distance") for reason in reasons) else "")
    if wanted == {"PHB"}:
        yield Advice(
            "NCCL_NET_GDR_LEVEL",
            "PHB",
            ALL_NODES,
            "GPUDirect is possible, but every card is one host bridge (PHB) away from its GPU, farther than the default; "
            "measure with and without it",
            "PCI tree, nvidia_peermem or DMA-BUF, ACS and IOMMU",
            sure=False,
        )


def _level_spelling(snapshot: Snapshot, node: str, value: str) -> Iterator[Advice]:
    level = resolve_level(value, rules_for(release(snapshot, node)))
    if level.name is None:
        near = value.strip().upper()
        known = resolve_level(near, rules_for(release(snapshot, node))).name
        yield Advice("NCCL_NET_GDR_LEVEL", known, node, level.note, "environment")


def _hindered(snapshot: Snapshot, node: str) -> bool:
    """ACS redirect or a translating IOMMU on the way: peer traffic would be slow or wrong."""
    pci: Dict[str, Any] = snapshot.facts(node, "pci-devices") or {"functions": {}, "group_types": {}}
    redirected = any((one["acs"] or 0) > 0 and one["acs"] & 0x0C for one in pci["functions"].values())
    return redirected or any(kind.startswith("DMA") for kind in pci["group_types"].values())


_LEFT_ON = {
    "NCCL_P2P_DISABLE": "switches GPU-to-GPU copies off, NVLink too",
    "NCCL_SHM_DISABLE": "switches shared memory off: ranks of one node then use the network",
    "NCCL_PXN_DISABLE": "keeps GPUs from using the cards beside their neighbours",
    "NCCL_IB_DISABLE": "switches RDMA off: NCCL takes sockets",
}
"""Switches from debugging that cost speed; on purpose or not, they are named."""


def _left_on(snapshot: Snapshot) -> Iterator[Advice]:
    for node in snapshot.nodes:
        known = settings(snapshot, node) or {}
        for name, what in _LEFT_ON.items():
            if name not in known or not integer(known[name].value):
                continue
            if name == "NCCL_IB_DISABLE" and not _has_rdma(snapshot, node):
                continue
            yield Advice(name, None, node, f"{name}={known[name].value} {what}", known[name].origin)
        net = known.get("NCCL_NET")
        if net is not None and net.value.lower() == "socket" and _has_rdma(snapshot, node):
            why = "NCCL_NET=Socket forces TCP although RDMA ports are up"
            yield Advice("NCCL_NET", None, node, why, net.origin)


def _has_rdma(snapshot: Snapshot, node: str) -> bool:
    every = [one.for_filter for one in machine.ports(snapshot, node)]
    return bool(hca.select(every, None).taken)
