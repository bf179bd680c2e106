"""The topology that NCCL will find on a node, from the facts of the probes `pci-devices`, `rdma-devices` and `gpus`.

Source: src/graph/xml.cc (ncclTopoGetXmlFromSys: a PCI switch is one element for its two sysfs levels, a root port none) and
ncclIbInit for the order of devices.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ncdiag.nccl import hca
from ncdiag.nccl.topology import SOCKETS_ONLY, Cpu, Gpu, Net, Nvlink, Pci, Topology
from ncdiag.nccl.version import NEWEST_READ, Version

Facts = Mapping[str, Any]

PCI_ORDER_SINCE = (2, 29, 7)
"""From here on verbs devices are numbered by PCI address; before, in the order of the verbs library."""


def build(
    pci: Facts,
    rdma: Optional[Facts],
    gpus: Optional[Facts],
    environ: Mapping[str, str],
    version: Optional[Version] = None,
    gdr_of_nics: Optional[bool] = None,
) -> Topology:
    """`rdma` and `gpus` may be missing (None). `gdr_of_nics`: whether driver and kernel allow GPUDirect; None: not known."""
    builder = _Builder(pci["functions"])
    cards = _gpus(pci["functions"], gpus)
    for card in cards:
        builder.place(card.busid).gpus.append(card)
    nets = _verbs_nets(rdma, environ, version or NEWEST_READ)
    over_sockets = not nets
    for net in nets or _socket_nets(pci["functions"]):
        net.gdr = False if over_sockets else gdr_of_nics
        if net.busid in pci["functions"]:
            builder.place(net.busid).nets.append(net)
        else:
            net.busid = ""
            builder.first_cpu().nets.append(net)
    topology = Topology(cpus=[builder.cpus[numa] for numa in sorted(builder.cpus)], origin="live")
    if over_sockets and topology.nets():
        topology.remarks.append(SOCKETS_ONLY)
    if pci.get("cut"):
        topology.remarks.append("the PCI tree is larger than was read; devices are missing here")
    return topology


class _Builder:
    def __init__(self, functions: Mapping[str, Facts]) -> None:
        self.functions = functions
        self.cpus: Dict[int, Cpu] = {}
        self.made: Dict[str, Pci] = {}

    def first_cpu(self) -> Cpu:
        if not self.cpus:
            self.cpus[0] = Cpu(numa=0)
        return self.cpus[min(self.cpus)]

    def place(self, address: str) -> Pci:
        """The element of a function, with every switch above it; one level in two is an element of NCCL's tree."""
        if address in self.made:
            return self.made[address]
        function = self.functions[address]
        element = _element(address, function, self.functions)
        self.made[address] = element
        parents = function["parents"]
        if len(parents) >= 2 and parents[-2] in self.functions:
            self.place(parents[-2]).children.append(element)
        else:
            numa = function["numa_node"]
            numa = -1 if numa is None else numa
            self.cpus.setdefault(numa, Cpu(numa=numa)).pci.append(element)
        return element


def _element(address: str, function: Facts, functions: Mapping[str, Facts]) -> Pci:
    """`gts` and `width` are what device and upstream port could do, as in a dump; `current_…` what was trained."""
    above = functions.get(function["parents"][-1]) if function["parents"] else None
    return Pci(
        busid=address,
        pci_class=function["pci_class"],
        ids=(function["vendor"], function["device"], function["subsystem_vendor"], function["subsystem_device"]),
        gts=_least(function["max_gts"], above and above["max_gts"]),
        width=_least(function["max_width"], above and above["max_width"]),
        current_gts=function["current_gts"],
        current_width=function["current_width"],
    )


def _least(one: Any, other: Any) -> Any:
    known = [value for value in (one, other) if value]
    return min(known) if known else None


def _gpus(functions: Mapping[str, Facts], gpus: Optional[Facts]) -> List[Gpu]:
    """By PCI address, which is NVML's order, too. What only the driver tells stays None without it."""
    told = {one["busid"]: one for one in (gpus or {}).get("gpus", [])}
    addresses = sorted(address for address, function in functions.items() if function["kind"] == "gpu")
    found = []
    for place, address in enumerate(addresses):
        one = told.get(address, {})
        index = one.get("index")
        found.append(
            Gpu(
                busid=address,
                dev=place if index is None else index,
                sm=one.get("sm"),
                nvlinks=_nvlinks(one),
            )
        )
    return found


def _nvlinks(gpu: Facts) -> List[Nvlink]:
    """Links to the same remote device together. The class is that of the remote end: GPU or NVSwitch."""
    counts: Dict[str, int] = {}
    for link in gpu.get("nvlinks") or []:
        if link.get("active"):
            remote = link.get("remote") or "fffffff:ffff:ff"
            counts[remote] = counts.get(remote, 0) + 1
    peers = {link.get("remote") for link in gpu.get("nvlinks") or [] if link.get("to_gpu")}
    return [Nvlink(remote, count, "0x030200" if remote in peers else "0x068000") for remote, count in counts.items()]


def _verbs_nets(rdma: Optional[Facts], environ: Mapping[str, str], version: Version) -> List[Net]:
    """The ports that the verbs transport takes, in its numbering."""
    devices = _ordered((rdma or {}).get("devices", []), version)
    by_name = {device["name"]: device for device in devices}
    ports = [
        hca.Port(device["name"], port["number"], port["state"] == "ACTIVE", port["link_layer"] or "Unknown")
        for device in devices
        for port in device["ports"]
    ]
    if hca.disabled(environ):
        return []
    taken = hca.select(ports, environ.get("NCCL_IB_HCA"), version).taken
    return [_verbs_net(number, port, by_name[port.device]) for number, port in enumerate(taken)]


def _ordered(devices: Sequence[Facts], version: Version) -> List[Facts]:
    if version >= PCI_ORDER_SINCE:
        return sorted(devices, key=lambda device: (device["busid"] or "~", device["name"]))
    return sorted(devices, key=lambda device: (1 << 30 if device["verbs"] is None else device["verbs"], device["name"]))


def _verbs_net(number: int, port: hca.Port, device: Facts) -> Net:
    facts = next(one for one in device["ports"] if one["number"] == port.number)
    return Net(
        name=device["name"],
        dev=number,
        busid=device["busid"] or "",
        speed_mbits_s=round((facts["rate_gbits_s"] or 0) * 1000),
        port=port.number,
        guid=(device["guid"] or "").replace(":", ""),
    )


def _socket_nets(functions: Mapping[str, Facts]) -> List[Net]:
    """Interfaces of network cards. Which of them NCCL takes is another question (NCCL_SOCKET_IFNAME)."""
    names = sorted((name, address) for address, one in functions.items() for name in one["netdevs"])
    return [Net(name=name, dev=number, busid=address) for number, (name, address) in enumerate(names)]
