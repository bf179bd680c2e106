"""What in a topology deserves a word: GPUs far from their NICs, GPUDirect that will be off, unequal devices, narrow links.

Devices are compared with their own kind on the machine first, and machines with each other; the only constants are what a
port's speed needs of its slot.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ncdiag.model import Finding, ok, skip, unknown, warn
from ncdiag.nccl.topology import GENERATIONS, Pci, link_name
from ncdiag.nccl.topology_view import GpuView, View
from ncdiag.nccl.uneven import uneven

_USABLE = 0.80  # of a link's raw rate: what is left below this cannot carry the port (encoding and packet overhead)


def check_topology(shown: View, node: str) -> Iterator[Finding]:
    """Findings of one machine; the first says what there is."""
    yield from _remarks(shown, node)
    if not shown.gpus:
        yield skip("no GPU in this topology", node, source=shown.topology.source)
        return
    if not shown.nets:
        yield skip(f"{len(shown.gpus)} GPUs and no network device in this topology", node, source=shown.topology.source)
        return
    problems = [*_near(shown, node), *_gpudirect(shown, node), *_equal(shown, node), *_links(shown, node)]
    yield from problems
    if not problems:
        yield ok(
            f"{len(shown.gpus)} GPUs and {len(shown.nets)} NICs, each GPU beside its own",
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
    for distance, group in _groups(far, lambda one: _best_distance(shown, one)):
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
        more = f" and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
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
        for unusual, usual, names in _odd_ones(items, value):
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
            f"{len(shown.nets)} NICs for {len(shown.gpus)} GPUs: one is missing, or they are shared unequally",
            node,
            observed=len(shown.nets),
            source=source,
            cause="hca-mismatch-between-nodes",
        )


def _odd_ones(items: Sequence[Any], value: Callable[[Any], Any]) -> Iterator[Tuple[Any, Any, str]]:
    """(value, the usual value, names) for those apart from a clear majority."""
    counted = Counter(value(item) for item in items)
    if len(counted) < 2:
        return
    (usual, times), (_, next_times) = counted.most_common(2)
    if times == next_times:
        return
    for unusual, group in _groups([item for item in items if value(item) != usual], value):
        yield unusual, usual, ", ".join(_label(item) for item in group)


def _label(item: Any) -> str:
    if isinstance(item, Pci):
        return _name(item)
    return str(item.gpu.label if isinstance(item, GpuView) else item.label)


def _groups(items: Iterable[Any], key: Callable[[Any], Any]) -> Iterable[Tuple[Any, List[Any]]]:
    groups: Dict[Any, List[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups.items()


def _links(shown: View, node: str) -> Iterator[Finding]:
    """PCIe links too narrow for the port, narrower than those of their kind, or trained below what both ends can."""
    functions = [pci for _, pci in shown.topology.functions()]
    for kind in ("gpu", "nic"):
        cards = [pci for pci in functions if pci.kind == kind and pci.width]
        for unusual, usual, group in _odd_links(cards):
            names = ", ".join(_name(pci) for pci in group)
            yield warn(
                f"{names}: PCIe x{unusual}, the others x{usual}",
                node,
                observed=unusual,
                expected=usual,
                source=shown.topology.source,
                cause="pcie-degraded",
                remedy=_RESEAT,
            )
    cards = [pci for pci in functions if pci.kind == "gpu" and pci.gts]
    for slow, usual, names in _odd_ones(cards, lambda pci: GENERATIONS.get(pci.gts, 0)):
        if slow < usual:
            yield warn(
                f"{names}: PCIe Gen{slow} in the dump, the others Gen{usual}; power saving if it was idle, else a fault",
                node,
                observed=slow,
                expected=usual,
                source=shown.topology.source,
                cause="pcie-degraded",
                remedy="look at it under load: nvidia-smi -q -d PCIE",
            )
    for pci in functions:
        yield from _too_narrow(pci, node, shown.topology.source)
        yield from _trained_low(pci, node)


_RESEAT = "check slot, riser and bifurcation; reseat the card; `lspci -vv` shows LnkCap and LnkSta"


def _odd_links(cards: List[Pci]) -> Iterator[Tuple[int, int, List[Pci]]]:
    counted = Counter(pci.width for pci in cards)
    if len(counted) > 1:
        usual, times = counted.most_common(1)[0]
        narrow = [pci for pci in cards if (pci.width or 0) < (usual or 0)]
        if times > len(cards) / 2:
            for width, group in _groups(narrow, lambda pci: pci.width):
                yield width, usual or 0, group


def _too_narrow(pci: Pci, node: str, origin: str) -> Iterator[Finding]:
    """The sum of a card's ports against its link. Only NICs: a GPU's figure may be that of its power saving."""
    need = sum(max(net.speed_mbits_s, 0) for net in pci.nets) / 1000.0
    gts = pci.current_gts or pci.gts
    width = pci.current_width or pci.width
    if not need or not gts or not width:
        return
    have = gts * width
    if have * _USABLE < need * 0.9:
        yield warn(
            f"{_name(pci)}: {need:g} Gb/s of ports on {link_name(gts, width)}, which carries {have * _USABLE:.0f} Gb/s at best",
            node,
            observed=link_name(gts, width),
            source=origin,
            cause="pcie-degraded",
            remedy=_RESEAT,
        )


def _trained_low(pci: Pci, node: str) -> Iterator[Finding]:
    if pci.kind != "nic" or pci.current_width is None or not pci.width:
        return
    slow = pci.current_gts is not None and pci.gts is not None and pci.current_gts < pci.gts and pci.gts in GENERATIONS
    if pci.current_width < pci.width or slow:
        could, is_now = link_name(pci.gts, pci.width), link_name(pci.current_gts, pci.current_width)
        yield warn(
            f"{_name(pci)}: trained at {is_now}, device and slot can do {could}",
            node,
            observed=is_now,
            expected=could,
            source=f"/sys/bus/pci/devices/{pci.busid}",
            cause="pcie-degraded",
            remedy=_RESEAT,
        )


def _name(pci: Pci) -> str:
    inner = [gpu.label for gpu in pci.gpus] or [net.label for net in pci.nets]
    return "/".join(inner) or pci.busid


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
