"""A topology as the graph that NCCL searches: nodes and links with a type and a bandwidth in GB/s.

Source: src/graph/topo.cc (ncclTopoAddCpu, AddPci, AddNvLinks, AddC2c, FlattenBcmSwitches, ConnectCpus) and topo.h of
v2.30.7-1, whose bandwidths hold for all versions here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Tuple

from ncdiag.nccl.rules import Rules
from ncdiag.nccl.topology import Cpu, Gpu, Net, Pci, Topology

LOCAL_GBYTES_S = 5000.0
_NVLINK_GBYTES_S = ((100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))
_UNKNOWN_SOCKET_GBYTES_S = 16.0


@dataclass
class Link:
    to: int
    kind: str  # LOC, NVL, C2C, PCI, SYS, NET
    gbytes_s: float


@dataclass
class Node:
    kind: str  # CPU, PCI, NVS, GPU, NIC, NET
    host: str
    what: object = None  # the Cpu, Pci, Gpu or Net it stands for
    links: List[Link] = field(default_factory=list)


class System:
    """`nodes`, and the indexes of those that matter by kind."""

    def __init__(self, topology: Topology, rules: Rules) -> None:
        self.rules = rules
        self.nodes: List[Node] = []
        self._by_bus: Dict[Tuple[str, str], int] = {}
        for cpu in topology.cpus:
            index = self._add("CPU", cpu.host_hash, cpu)
            for pci in cpu.pci:
                self._add_pci(pci, index, cpu.host_hash, 0)
            if cpu.nets:
                nic = self._add("NIC", cpu.host_hash)
                self._join(index, nic, "PCI", LOCAL_GBYTES_S)
                self._add_nets(cpu.nets, nic)
        self._join_gpus()
        self._join_switches()
        self._join_cpus()

    def of(self, kind: str) -> List[int]:
        return [index for index, node in enumerate(self.nodes) if node.kind == kind]

    def gpu(self, index: int) -> Gpu:
        found = self.nodes[index].what
        assert isinstance(found, Gpu)
        return found

    def net(self, index: int) -> Net:
        found = self.nodes[index].what
        assert isinstance(found, Net)
        return found

    def _add(self, kind: str, host: str, what: object = None) -> int:
        self.nodes.append(Node(kind, host, what))
        return len(self.nodes) - 1

    def _join(self, one: int, other: int, kind: str, gbytes_s: float) -> None:
        self._join_one_way(one, other, kind, gbytes_s)
        self._join_one_way(other, one, kind, gbytes_s)

    def _join_one_way(self, one: int, other: int, kind: str, gbytes_s: float) -> None:
        for link in self.nodes[one].links:
            if link.to == other and link.kind == kind:
                link.gbytes_s += gbytes_s
                break
        else:
            self.nodes[one].links.append(Link(other, kind, gbytes_s))
        self.nodes[one].links.sort(key=lambda link: -link.gbytes_s)

    def _add_pci(self, pci: Pci, parent: int, host: str, generation: int) -> None:
        for gpu in pci.gpus:
            index = self._add("GPU", host, gpu)
            self._by_bus[host, gpu.busid] = index
            self._join(parent, index, "PCI", pci.gbytes_s)
        if pci.gpus and not pci.nets and not pci.children:
            return
        if pci.nets:
            nic = self._add("NIC", host, pci)
            self._join(parent, nic, "PCI", pci.gbytes_s)
            self._add_nets(pci.nets, nic)
            return
        if pci.kind != "switch":
            return
        flat = self._broadcom(pci, 1)
        if generation and flat == generation:
            index = parent  # the second level of one switch: its ports count as ports of the first
        else:
            index = self._add("PCI", host, pci)
            self._by_bus[host, pci.busid] = index
            self._join(parent, index, "PCI", pci.gbytes_s)
        for child in pci.children:
            self._add_pci(child, index, host, self._broadcom(pci, 0))

    def _broadcom(self, pci: Pci, level: int) -> int:
        """The generation of a Broadcom switch that shows up as two levels though it is one, 0 for all others."""
        vendor, device, sub_vendor, sub_device = pci.ids
        if vendor != "0x1000" or sub_vendor != "0x1000":
            return 0
        if device == "0xc010" and sub_device.startswith("0xa") and len(sub_device) == 6:
            return 4
        if self.rules.version < (2, 20, 0) or device != "0xc030" or len(sub_device) != 6:
            return 0
        return 5 if sub_device.startswith(("0x0", "0x1")[level]) else 0

    def _add_nets(self, nets: List[Net], nic: int) -> None:
        for net in nets:
            if not net.used:
                continue
            speed = net.speed_mbits_s if net.speed_mbits_s > 0 else 10000
            index = self._add("NET", self.nodes[nic].host, net)
            self._join(nic, index, "NET", speed / 8000.0)

    def _join_gpus(self) -> None:
        switch: Optional[int] = None
        for index in self.of("GPU"):
            node, gpu = self.nodes[index], self.gpu(index)
            per_link = next((rate for sm, rate in _NVLINK_GBYTES_S if (gpu.sm or 80) >= sm), 20.0)
            for nvlink in gpu.nvlinks:
                rate = nvlink.count * per_link
                if nvlink.to == "gpu":
                    peer = self._by_bus.get((node.host, nvlink.target))
                    if peer is not None and self.nodes[peer].kind == "GPU":
                        self._join_one_way(index, peer, "NVL", rate)
                elif nvlink.to == "cpu":
                    self._join_cpu(index, "NVL", rate)
                else:
                    switch = self._add("NVS", "") if switch is None else switch
                    self._join(index, switch, "NVL", rate)
            if gpu.c2c_gbytes_s:
                self._join_cpu(index, "C2C" if "C2C" in self.rules.types else "NVL", gpu.c2c_gbytes_s)

    def _join_cpu(self, index: int, kind: str, gbytes_s: float) -> None:
        above: Optional[int] = index
        seen = set()
        while above is not None and self.nodes[above].kind != "CPU":
            seen.add(above)
            above = next(
                (
                    link.to
                    for link in self.nodes[above].links
                    if link.kind == "PCI" and link.to not in seen and self.nodes[link.to].kind in ("PCI", "CPU")
                ),
                None,
            )
        if above is not None:
            self._join(index, above, kind, gbytes_s)

    def _join_switches(self) -> None:
        for index in self.of("PCI"):
            pci = self.nodes[index].what
            assert isinstance(pci, Pci)
            for peer in pci.peers:
                other = self._by_bus.get((self.nodes[index].host, peer))
                if other is not None and self.nodes[other].kind == "PCI":
                    self._join_one_way(index, other, "LOC", LOCAL_GBYTES_S)

    def _join_cpus(self) -> None:
        cpus = self.of("CPU")
        for one in cpus:
            for other in cpus:
                if one != other and self.nodes[one].host == self.nodes[other].host:
                    self._join_one_way(one, other, "SYS", _socket_gbytes_s(self.nodes[one].what))


def _socket_gbytes_s(cpu: object) -> float:
    """NCCL's figure for the link between two sockets of this kind."""
    assert isinstance(cpu, Cpu)
    if cpu.arch == "ppc64":
        return 32.0
    if cpu.arch == "arm64":
        return 6.0
    if cpu.vendor == "AuthenticAMD":
        return 16.0
    if cpu.vendor == "GenuineIntel" and cpu.family == 6 and cpu.model is not None:
        return 40.0 if cpu.model >= 0xCF else 22.0 if cpu.model >= 0x8F else 10.0 if cpu.model >= 0x55 else 6.0
    if cpu.vendor in ("CentaurHauls", "  Shanghai  "):
        return 9.0 if (cpu.family, cpu.model) == (7, 0x5B) else 6.0
    return _UNKNOWN_SOCKET_GBYTES_S
