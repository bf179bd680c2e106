"""What in a topology deserves a word: GPUs far from their NICs, GPUDirect that will be off, unequal devices.

Devices are compared with their own kind on the machine first, and machines with each other. Links: `topology_links`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ncdiag.model import Finding, ok, skip, unknown, warn
from ncdiag.nccl.topology import SOCKETS_ONLY
from ncdiag.nccl.topology_links import check_links
from ncdiag.nccl.topology_view import GpuView, View
from ncdiag.nccl.uneven import grouped, odd_ones, uneven
from ncdiag.nodeset import counted


def check_topology(shown: View, node: str) -> Iterator[Finding]:
    """Findings of one machine; the first says what there is."""
    yield from _remarks(shown, node)
    if not shown.gpus:
        yield skip("no GPU in this topology", node, source=shown.topology.source)
        return
    if not shown.nets:
        yield skip(
            f"{counted(len(shown.gpus), 'GPU')} and no network device in this topology",
            node,
            source=shown.topology.source,
        )
        return
    if SOCKETS_ONLY in shown.topology.remarks:
        yield from check_links(shown, node)
        text = f"{counted(len(shown.gpus), 'GPU')} and no usable RDMA port: NCCL takes TCP sockets, to which distance and GPUDirect do not apply"
        yield skip(text, node, source=shown.topology.source)
        return
    problems = [*_near(shown, node), *_gpudirect(shown, node), *_equal(shown, node), *check_links(shown, node)]
    yield from problems
    if not problems:
        yield ok(
            f"{counted(len(shown.gpus), 'GPU')} and {counted(len(shown.nets), 'NIC')}, each GPU beside its own",
            node,
            source=shown.topology.source,
        )


def _remarks(shown: View, node: str) -> Iterator[Finding]:
    for remark in shown.topology.remarks:
        if "cut off" in remark:
            yield unknown(
                f"the dump is incomplete ({remark})",
                node,
                source="topology file",
                remedy="copy the file again, or dump it anew with NCCL_TOPO_DUMP_FILE after the job has started",
            )
        elif "refuse" in remark or "stops" in remark or "accepts" in remark:
            yield warn(
                f"as NCCL_TOPO_FILE this would fail: {remark}",
                node,
                source="topology file",
                cause="topology-file-error",
                remedy="unset NCCL_TOPO_FILE, or dump a fresh file with NCCL_TOPO_DUMP_FILE",
            )


def _near(shown: View, node: str) -> Iterator[Finding]:
    """GPUs whose own NIC is behind the CPU."""
    far = [one for one in shown.gpus if one.nearest and not _is_near(shown, one)]
    if not far:
        return
    everywhere = len(far) == len(shown.gpus)
    for distance, group in grouped(far, lambda one: _best_distance(shown, one)):
        names = ", ".join(one.gpu.label for one in group)
        if everywhere and distance == "PHB":
            text = f"no NIC in a switch with any GPU: {names} reach theirs through the CPU (PHB), as on flat PCI trees of VMs"
        else:
            text = f"{names}: the nearest NIC is {distance} away" + (
                "" if everywhere else "; other GPUs have one nearer"
            )
        virtual = all(not nic.net.busid for one in group for nic in one.own)
        yield warn(
            text + (" (virtual devices without a place in the PCI tree)" if virtual else ""),
            node,
            observed=distance,
            expected="PIX or PXB",
            source=shown.topology.source,
            cause="gdr-disabled",
            remedy=_far_remedy(distance, virtual),
        )


def _far_remedy(distance: str, virtual: bool) -> str:
    if virtual:
        return "in a VM or container, give NCCL the machine's topology file (NCCL_TOPO_FILE), or expose the host's /sys"
    if distance == "PHB":
        return (
            "where ACS and the IOMMU let peer traffic through, NCCL_NET_GDR_LEVEL=PHB turns GPUDirect on; measure both"
        )
    return (
        "check the slots against the vendor's plan; a NIC under each GPU's own socket avoids the link between sockets"
    )


def _best_distance(shown: View, one: GpuView) -> str:
    return min((nic.distance for nic in one.nics), key=shown.rules.rank)


def _is_near(shown: View, one: GpuView) -> bool:
    limit = "P2C" if "P2C" in shown.rules.types else "PXB"
    distance = _best_distance(shown, one)
    return distance == "P2C" or (shown.rules.within(distance, limit) and distance != "PXN")


def _gpudirect(shown: View, node: str) -> Iterator[Finding]:
    """GPUDirect off between a GPU and the NICs that it will use, by reason."""
    off: Dict[str, List[str]] = {}
    for one in shown.gpus:
        for nic in one.own:
            for reason in nic.gdr.reasons:
                off.setdefault(_kind_of(reason), []).append(f"{one.gpu.label}/{nic.net.label}: {reason}")
    for kind, pairs in off.items():
        more = f" and {counted(len(pairs) - 1, 'more pair')}" if len(pairs) > 1 else ""
        yield warn(
            f"GPUDirect RDMA will be {kind}: {pairs[0]}{more}",
            node,
            observed=pairs,
            source=shown.topology.source,
            cause="gdr-disabled",
            remedy=_GDR_REMEDIES[kind],
        )


_GDR_REMEDIES = {
    "off (device)": "load nvidia_peermem, or use the open kernel modules with DMA-BUF; see `ncdiag preflight --only gpudirect`",
    "off (distance)": "raise NCCL_NET_GDR_LEVEL to that distance if peer traffic works there, or place GPU and NIC in one switch",
    "for receiving only": "NCCL_NET_GDR_READ=1 turns it on for sends; measure both",
}


def _kind_of(reason: str) -> str:
    if reason.startswith("only for receiving"):
        return "for receiving only"
    return "off (distance)" if reason.startswith("distance") else "off (device)"


def _equal(shown: View, node: str) -> Iterator[Finding]:
    """GPUs and NICs that differ from their kind on the same machine."""
    source = shown.topology.source

    def odd(items: Sequence[Any], value: Callable[[Any], Any], what: str, cause: Optional[str]) -> Iterator[Finding]:
        for unusual, usual, group in odd_ones(items, value):
            names = ", ".join(str(one.gpu.label if isinstance(one, GpuView) else one.label) for one in group)
            yield warn(
                f"{names}: {what} {unusual}, the others {usual}",
                node,
                observed=unusual,
                expected=usual,
                source=source,
                cause=cause,
            )

    yield from odd(shown.gpus, lambda one: sum(link.count for link in one.gpu.nvlinks), "NVLinks", "gpu-hardware-fault")
    yield from odd(shown.gpus, lambda one: len(one.own), "number of NICs", "hca-mismatch-between-nodes")
    yield from odd(shown.nets, lambda net: net.speed_mbits_s / 1000.0, "Gb/s", "ib-link-or-hca-fault")
    yield from odd(shown.nets, lambda net: len(net.members), "merged ports", "hca-mismatch-between-nodes")
    yield from odd(shown.nets, lambda net: "no" if net.gdr is False else "yes", "GPUDirect", "gdr-disabled")
    if len(shown.gpus) > 2 and len(shown.nets) < len(shown.gpus) and len(shown.gpus) % len(shown.nets):
        yield warn(
            f"{counted(len(shown.nets), 'NIC')} for {counted(len(shown.gpus), 'GPU')}: one is missing, or they are shared unequally",
            node,
            observed=len(shown.nets),
            source=source,
            cause="hca-mismatch-between-nodes",
        )


def compare_topologies(views: Sequence[Tuple[str, View]]) -> Iterator[Finding]:
    """Machines of one job against the majority of them."""
    if len(views) < 2:
        return
    for what, cause, value in _COMPARED:
        yield from uneven(
            warn,
            {node: str(value(shown)) for node, shown in views},
            what + ": {own}, other nodes have {others}",
            source=views[0][1].topology.source,
            cause=cause,
            remedy="see what differs in their trees: a card is missing, down, slower or in another slot",
        )


def _speeds(shown: View) -> str:
    counted = Counter(net.speed_mbits_s / 1000.0 for net in shown.nets)
    return ", ".join(f"{times} x {speed:g} Gb/s" for speed, times in sorted(counted.items())) or "none"


def _distances(shown: View) -> str:
    counted = Counter(_best_distance(shown, one) for one in shown.gpus if one.nics)
    return ", ".join(f"{times} x {kind}" for kind, times in sorted(counted.items())) or "none"


_COMPARED: Tuple[Tuple[str, str, Callable[[View], Any]], ...] = (
    ("GPUs", "rank-layout-wrong", lambda shown: len(shown.gpus)),
    ("NICs", "hca-mismatch-between-nodes", _speeds),
    ("distance from each GPU to its nearest NIC", "gdr-disabled", _distances),
    (
        "NVLinks of a GPU",
        "gpu-hardware-fault",
        lambda shown: "/".join(
            str(n) for n in sorted({sum(link.count for link in one.gpu.nvlinks) for one in shown.gpus})
        ),
    ),
    ("NICs that allow GPUDirect", "gdr-disabled", lambda shown: sum(net.gdr is not False for net in shown.nets)),
)
