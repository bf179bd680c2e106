"""PCIe peer traffic is not sent up to the root complex, and no IOMMU translates it.

ACS request redirect on the bridges between GPU and card, or an IOMMU that translates their DMA, makes GPUDirect and GPU-to-GPU copies
slow (half the bandwidth or less), and on some platforms broken: NCCL then hangs or returns wrong data. In virtual machines ACS is
needed for isolation, and on Grace with ConnectX-8 some bits must stay, so there nothing is called wrong.

Source: NCCL user guide, troubleshooting, PCI Access Control Services; PCIe ACS extended capability; kernel iommu_groups; rdma-core's
rdma_topo for Grace.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, TypedDict

from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl.sysfs import word
from ncdiag.nodeset import counted

REDIRECT = 0x0C  # ACS control: request redirect 0x04, completion redirect 0x08
PASS_THROUGH = "identity"  # group type without translation


class Facts(TypedDict):
    virtual_machine: Optional[bool]  # the `hypervisor` flag in /proc/cpuinfo; None: not readable, or no x86
    arm: Optional[bool]  # `CPU implementer` lines instead of flags


def collect(host: Host) -> Facts:
    text = word(host, "/proc/cpuinfo")
    if not text:
        return {"virtual_machine": None, "arm": None}
    flags = re.search(r"^flags\s*:.*$", text, re.M)
    arm = flags is None and "CPU implementer" in text
    return {"virtual_machine": None if flags is None else " hypervisor" in flags.group(), "arm": arm}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        pci = snapshot.facts(node, "pci-devices")
        if pci is None:
            yield unknown("the PCI tree was not read", node, source="/sys/bus/pci/devices")
            continue
        functions = pci["functions"]
        gpus = sorted(address for address, one in functions.items() if one["kind"] == "gpu")
        rdma = {one["busid"] for one in (snapshot.facts(node, "rdma-devices") or {"devices": []})["devices"]}
        nics = sorted(address for address in functions if address in rdma)
        if not gpus or len(gpus) + len(nics) < 2:
            yield skip("no GPU with a second GPU or an RDMA card beside it", node, source="/sys/bus/pci/devices")
        elif facts["virtual_machine"]:
            yield skip("a virtual machine: ACS and IOMMU are the hypervisor's", node, source="/proc/cpuinfo")
        elif facts["arm"]:
            yield skip(
                "ARM server: some ACS bits must stay there; `rdma_topo check` (rdma-core 61) knows which",
                node,
                source="/proc/cpuinfo",
            )
        else:
            yield from _acs(node, functions, [*gpus, *nics], facts)
            yield from _iommu(node, pci, [*gpus, *nics])


def _acs(node: str, functions: Mapping[str, Mapping[str, Any]], cards: List[str], facts: Facts) -> Iterator[Finding]:
    source = "/sys/bus/pci/devices/*/config (ACS control)"
    bridges = sorted({parent for card in cards for parent in functions[card]["parents"]} & set(functions))
    if not bridges:
        yield skip("no bridge above the cards (flat PCI tree)", node, source=source)
        return
    unread = [bridge for bridge in bridges if functions[bridge]["acs"] is None]
    on = [bridge for bridge in bridges if (functions[bridge]["acs"] or 0) > 0 and functions[bridge]["acs"] & REDIRECT]
    if on:
        words = {bridge: f"0x{functions[bridge]['acs']:04x}" for bridge in on}
        sure = "" if facts["virtual_machine"] is False else " (if this is bare metal)"
        yield warn(
            f"ACS redirects peer traffic at {len(on)} of {counted(len(bridges), 'bridge')}: {', '.join(on[:4])}{sure}",
            node,
            source=source,
            observed=words,
            expected="request and completion redirect off",
            cause="gdr-disabled",
            remedy=(
                "on bare metal switch ACS off in the firmware, or at every boot: setpci -s <bridge> ECAP_ACS+0x6.w=0000; "
                "not in virtual machines"
            ),
        )
    elif unread:
        yield unknown(
            f"ACS of {counted(len(unread), 'bridge')} cannot be read without root",
            node,
            source=source,
            remedy="run as root, or: sudo lspci -vvv | grep ACSCtl",
        )
    else:
        yield ok(f"no ACS redirect at {counted(len(bridges), 'bridge')} above GPUs and cards", node, source=source)


def _iommu(node: str, pci: Mapping[str, Any], cards: List[str]) -> Iterator[Finding]:
    source = "/sys/class/iommu, /sys/kernel/iommu_groups/*/type"
    types: Dict[str, List[str]] = {}
    for card in cards:
        group = pci["functions"][card]["iommu_group"]
        if group is not None:
            types.setdefault(pci["group_types"].get(group, "?"), []).append(card)
    if "?" in types:
        types[_by_options(pci["kernel_options"])] = types.pop("?")
    translated = {kind: found for kind, found in types.items() if kind.startswith("DMA")}
    if translated:
        kind, found = next(iter(translated.items()))
        yield warn(
            f"the IOMMU translates the DMA of {', '.join(found[:4])} (type {kind})",
            node,
            source=source,
            observed=types,
            expected=PASS_THROUGH,
            cause="gdr-disabled",
            remedy="boot with iommu=pt (pass-through) or with the IOMMU off in the firmware",
        )
    elif "?" in types:
        yield unknown("an IOMMU is active, the type of its groups is not told", node, source=source)
    elif set(types) - {PASS_THROUGH}:
        kind = min(set(types) - {PASS_THROUGH})
        yield unknown(
            f"the IOMMU keeps {', '.join(types[kind][:4])} for a driver of user space or shut off (type {kind}): not for the engine here",
            node,
            source=source,
        )
    elif types:
        yield ok(
            f"IOMMU in pass-through for {counted(sum(map(len, types.values())), 'card')}",
            node,
            source=source,
            observed=types,
        )
    elif pci["iommus"]:
        yield unknown(
            f"an IOMMU is active ({', '.join(pci['iommus'][:4])}), but the cards show no group", node, source=source
        )
    else:
        yield ok("no IOMMU is active", node, source=source)


def _by_options(options: List[str]) -> str:
    """The type of a group whose own file is not readable, by the kernel command line; `?` where that says nothing."""
    if "iommu=pt" in options or "iommu.passthrough=1" in options:
        return PASS_THROUGH
    return "DMA by the kernel command line" if {"intel_iommu=on", "amd_iommu=on", "iommu=force"} & set(options) else "?"


PROBE = Probe(
    "acs-iommu",
    "Neither ACS nor an IOMMU stands between GPUs and cards",
    judge,
    collect,
    needs=("pci-devices", "rdma-devices"),
)
