"""PCIe links run at the width and speed that card and slot can do.

A card in an x8 slot, a bad riser or a dirty contact halves the bandwidth of one rail, and the slowest rail sets the pace of every
collective. A 400 Gb/s port needs Gen5 x16. GPUs lower their speed when idle, so of them only the width is judged here.

Source: /sys/bus/pci/devices/<bdf>/{current,max}_link_{speed,width}, aer_dev_*, config (device control word); PCI Express base specification for the rates.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Dict, Iterator, Mapping, Optional, Set, Tuple

from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl.topology import link_name
from ncdiag.nodeset import counted

USABLE = 0.80  # of the raw rate: what encoding and packet headers leave
CORRECTABLE_NOTED = 1000  # corrected errors since boot; fewer are usual
CORRECTABLE_FACTOR = 10  # and at least so many times the median of the node's cards

Functions = Mapping[str, Mapping[str, Any]]


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    usual, relaxed = _usual_widths(snapshot), _relaxed_models(snapshot)
    for node, facts in snapshot.each("pci-devices"):
        functions: Functions = facts["functions"]
        cards = {
            address: one for address, one in functions.items() if one["kind"] in ("gpu", "nic") and not one["virtual"]
        }
        if not cards:
            yield skip("no GPU and no network card on the PCI bus", node, source="/sys/bus/pci/devices")
            continue
        told = {address: one for address, one in cards.items() if one["current_width"] and one["max_width"]}
        problems = [*_gone(node, functions)]
        problems += [finding for address in told for finding in _card(node, address, functions, usual)]
        problems += _bridges(node, cards, functions)
        problems += _ports(snapshot, node, functions)
        problems += _errors(node, cards)
        problems += _ordering(node, cards, relaxed)
        yield from problems
        if not told:
            yield _untold(snapshot, node, cards)
        elif not problems:
            yield ok(
                f"{counted(len(told), 'PCIe link')} as wide as card and slot allow", node, source="/sys/bus/pci/devices"
            )


_LOST = {"gpu": "gpu-hardware-fault", "nvswitch": "nvswitch-error", "nic": "ib-link-or-hca-fault"}
"""Kind of a function -> the cause when it has fallen off the bus; of bridges it is the link."""


def _gone(node: str, functions: Functions) -> Iterator[Finding]:
    for address, one in functions.items():
        if one.get("gone") and not any(functions[above].get("gone") for above in one["parents"] if above in functions):
            below = sorted(
                other for other, card in functions.items() if address in card["parents"] and card["kind"] in _LOST
            )
            with_it = f", and with it {', '.join(below[:4])}" if below else ""
            yield fail(
                f"{one['kind']} {address} has fallen off the bus: its configuration space reads 0xff{with_it}",
                node,
                source=f"/sys/bus/pci/devices/{address}/config",
                device=address,
                observed="0xff",
                cause=_LOST.get(one["kind"], "pcie-degraded"),
                remedy="look for Xid 79, AER and `link is down` in the kernel log; drain the node and power-cycle it; then reseat the card",
            )


def _untold(snapshot: Snapshot, node: str, cards: Functions) -> Finding:
    source = "/sys/bus/pci/devices/*/current_link_width"
    rdma = (snapshot.facts(node, "rdma-devices") or {}).get("devices")
    if rdma or any(one["kind"] == "gpu" for one in cards.values()):
        return unknown("no card tells its link (usual in virtual machines)", node, source=source)
    return skip("no GPU and no RDMA card; the other network cards do not tell their link", node, source=source)


def _usual_widths(snapshot: Snapshot) -> Dict[Tuple[str, str], int]:
    """(vendor, device) -> the width that most cards of that model have, over all nodes."""
    counted: Dict[Tuple[str, str], Counter] = {}
    for _, facts in snapshot.each("pci-devices"):
        for one in facts["functions"].values():
            if one["kind"] in ("gpu", "nic") and one["current_width"]:
                counted.setdefault((one["vendor"], one["device"]), Counter())[one["current_width"]] += 1
    return {model: widths.most_common(1)[0][0] for model, widths in counted.items()}


def could(address: str, functions: Functions) -> Tuple[Optional[float], Optional[int]]:
    """(GT/s, lanes) that the function and the port above it can both do."""
    one = functions[address]
    above = functions.get(one["parents"][-1]) if one["parents"] else None
    return _least(one["max_gts"], above and above["max_gts"]), _least(one["max_width"], above and above["max_width"])


def _least(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value]
    return min(known) if known else None


_REMEDY = "reseat the card, check riser, slot and bifurcation; `lspci -vv` shows LnkCap and LnkSta"


def _card(node: str, address: str, functions: Functions, usual: Dict[Tuple[str, str], int]) -> Iterator[Finding]:
    one = functions[address]
    gts, width = could(address, functions)
    slow = one["kind"] == "nic" and gts and one["current_gts"] and one["current_gts"] < gts
    narrow = width and one["current_width"] < width
    is_now = link_name(one["current_gts"], one["current_width"])
    if slow or narrow:
        best = link_name(gts, width) if one["kind"] == "nic" else f"x{width}"
        text = f"{one['kind'].upper()} {address}: PCIe {is_now}, card and slot can do {best}"
        yield _low(node, address, text, is_now, best)
    elif one["current_width"] < usual[one["vendor"], one["device"]]:
        best = f"x{usual[one['vendor'], one['device']]}"
        yield _low(
            node,
            address,
            f"{one['kind'].upper()} {address}: PCIe {is_now}, other cards of that model have {best}",
            is_now,
            best,
        )


def _low(node: str, address: str, text: str, observed: str, expected: str) -> Finding:
    return warn(text, node, source=f"/sys/bus/pci/devices/{address}", device=address, observed=observed, expected=expected,
                cause="pcie-degraded", remedy=_REMEDY)  # fmt: skip


def _bridges(node: str, cards: Functions, functions: Functions) -> Iterator[Finding]:
    """The links between switches and root ports above the cards."""
    above = {parent for one in cards.values() for parent in one["parents"][1:]}
    for address in sorted(above & set(functions)):
        one = functions[address]
        gts, width = could(address, functions)
        if not one["current_width"] or not width or not one["current_gts"] or not gts:
            continue
        if one["current_width"] < width or one["current_gts"] < gts:
            is_now, best = link_name(one["current_gts"], one["current_width"]), link_name(gts, width)
            below = sorted(card for card, function in cards.items() if address in function["parents"])
            yield _low(
                node,
                address,
                f"switch {address} above {', '.join(below[:4])}: PCIe {is_now}, both ends can do {best}",
                is_now,
                best,
            )


def _ports(snapshot: Snapshot, node: str, functions: Functions) -> Iterator[Finding]:
    """Ports that are faster than their slot."""
    rates: Dict[str, float] = {}
    for device in (snapshot.facts(node, "rdma-devices") or {}).get("devices", []):
        active = sum(port["rate_gbits_s"] or 0 for port in device["ports"] if port["state"] == "ACTIVE")
        if device["busid"]:
            rates[device["busid"]] = rates.get(device["busid"], 0) + active
    for address, need in rates.items():
        one = functions.get(address)
        if one is None or one["virtual"] or not one["current_gts"] or not one["current_width"] or not need:
            continue
        have = one["current_gts"] * one["current_width"] * USABLE
        if have < need * 0.9:
            is_now = link_name(one["current_gts"], one["current_width"])
            text = f"NIC {address}: {need:g} Gb/s of ports on PCIe {is_now}, which carries {have:.0f} Gb/s at best"
            yield _low(node, address, text, is_now, f"{need:g} Gb/s")


def _errors(node: str, cards: Functions) -> Iterator[Finding]:
    told = {address: one["aer_correctable"] for address, one in cards.items() if one["aer_correctable"] is not None}
    for address, one in cards.items():
        fatal, count = one["aer_fatal"] or 0, one["aer_correctable"] or 0
        others = sorted(value for other, value in told.items() if other != address)
        median = others[len(others) // 2] if others else 0
        if fatal or (count >= CORRECTABLE_NOTED and count > CORRECTABLE_FACTOR * median):
            kind = f"{fatal} uncorrected" if fatal else f"{count} corrected"
            yield warn(
                f"{one['kind'].upper()} {address}: {kind} PCIe errors since boot",
                node,
                source=f"/sys/bus/pci/devices/{address}/aer_dev_*",
                device=address,
                observed=fatal or count,
                unit="errors",
                expected=0 if fatal else f"about {median} as on the other cards",
                cause="pcie-degraded",
                remedy="reseat the card and its riser; if it stays, have the slot checked; dmesg shows AER lines",
            )


def _relaxed_models(snapshot: Snapshot) -> Set[Tuple[str, str]]:
    """(vendor, device) of network cards of which some have relaxed ordering enabled."""
    return {
        (one["vendor"], one["device"])
        for _, facts in snapshot.each("pci-devices")
        for one in facts["functions"].values()
        if one["kind"] == "nic" and one.get("relaxed_ordering")
    }


def _ordering(node: str, cards: Functions, relaxed: Set[Tuple[str, str]]) -> Iterator[Finding]:
    """Off on one card and on on its like. Off on all is the platform's choice: the kernel clears it below root ports that cannot."""
    for address, one in cards.items():
        if one.get("relaxed_ordering") is False and (one["vendor"], one["device"]) in relaxed:
            yield warn(
                f"NIC {address}: PCIe relaxed ordering is off, on other cards of that model it is on",
                node,
                source=f"/sys/bus/pci/devices/{address}/config",
                device=address,
                observed="off",
                expected="on",
                cause="pcie-degraded",
                remedy="compare firmware and BIOS with the other cards: lspci -vv shows RlxdOrd in DevCtl, mlxconfig PCI_WR_ORDERING",
            )


PROBE = Probe("pcie-link", "PCIe links run as wide and fast as they can", judge, needs=("pci-devices", "rdma-devices"))
