"""PCIe links in a topology: too narrow for the port, narrower than those of their kind, or trained below what both ends can."""

from __future__ import annotations

from typing import Any, Iterator, List

from ncdiag.model import Finding, warn
from ncdiag.nccl.topology import GENERATIONS, Pci, link_name
from ncdiag.nccl.topology_view import View
from ncdiag.nccl.uneven import odd_ones

_USABLE = 0.80  # of a link's raw rate: what is left below this cannot carry the port (encoding and packet overhead)


def check_links(shown: View, node: str) -> Iterator[Finding]:
    """PCIe links too narrow for the port, narrower than those of their kind, or trained below what both ends can."""
    functions = [pci for _, pci in shown.topology.functions()]
    source = shown.topology.source
    for kind in ("gpu", "nic"):
        cards = [pci for pci in functions if pci.kind == kind and pci.width]
        for width, usual, group in odd_ones(cards, lambda pci: pci.width):
            if width < usual:
                yield _low(group, f"PCIe x{width}, the others x{usual}", width, usual, source, node)
    cards = [pci for pci in functions if pci.kind == "gpu" and pci.gts]
    for slow, usual, group in odd_ones(cards, lambda pci: GENERATIONS.get(pci.gts or 0.0, 0)):
        if slow < usual:
            text = f"PCIe Gen{slow} in the dump, the others Gen{usual}; power saving if it was idle, else a fault"
            yield _low(group, text, slow, usual, source, node)
    for pci in functions:
        yield from _too_narrow(pci, node, source)
        yield from _trained_low(pci, node)


_RESEAT = "check slot, riser and bifurcation, under load; reseat the card; `lspci -vv` shows LnkCap and LnkSta"


def _low(cards: List[Pci], text: str, observed: Any, expected: Any, source: str, node: str) -> Finding:
    names = ", ".join(_name(pci) for pci in cards)
    return warn(f"{names}: {text}", node, observed=observed, expected=expected, source=source, cause="pcie-degraded",
                remedy=_RESEAT)  # fmt: skip


def _too_narrow(pci: Pci, node: str, source: str) -> Iterator[Finding]:
    """The sum of a card's ports against its link. Only NICs: a GPU's figure may be that of its power saving."""
    need = sum(max(net.speed_mbits_s, 0) for net in pci.nets) / 1000.0
    gts = pci.current_gts or pci.gts
    width = pci.current_width or pci.width
    if not need or not gts or not width:
        return
    have = gts * width
    if have * _USABLE < need * 0.9:
        is_now = link_name(gts, width)
        text = f"{need:g} Gb/s of ports on {is_now}, which carries {have * _USABLE:.0f} Gb/s at best"
        yield _low([pci], text, is_now, f"{need:g} Gb/s", source, node)


def _trained_low(pci: Pci, node: str) -> Iterator[Finding]:
    if pci.kind != "nic" or pci.current_width is None or not pci.width:
        return
    slow = pci.current_gts is not None and pci.gts is not None and pci.current_gts < pci.gts and pci.gts in GENERATIONS
    if pci.current_width < pci.width or slow:
        could, is_now = link_name(pci.gts, pci.width), link_name(pci.current_gts, pci.current_width)
        text = f"trained at {is_now}, device and slot can do {could}"
        yield _low([pci], text, is_now, could, f"/sys/bus/pci/devices/{pci.busid}", node)


def _name(pci: Pci) -> str:
    inner = [gpu.label for gpu in pci.gpus] or [net.label for net in pci.nets]
    return "/".join(inner) or pci.busid
