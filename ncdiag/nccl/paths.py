"""How far each GPU is from each NIC and GPU, in NCCL's own path types, for one version and its settings.

The search follows NCCL's: breadth first from each device, then C2C, PXN and the detour through the CPU where GPUDirect
is not possible, in NCCL's order, because later steps look at what earlier ones left.
Source: src/graph/paths.cc (ncclTopoSetPaths, ncclTopoComputePaths, addInterStep) of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from ncdiag.nccl import gdr, nic_choice
from ncdiag.nccl.rules import Rules
from ncdiag.nccl.settings import Settings
from ncdiag.nccl.system import LOCAL_GBYTES_S, Link, System
from ncdiag.nccl.topology import Cpu, Topology


@dataclass
class Path:
    """From one node to another."""

    kind: str
    gbytes_s: float
    hops: int
    via: Optional[int] = None  # PXN: the GPU in between

    def copy(self) -> Path:
        return Path(self.kind, self.gbytes_s, self.hops, self.via)


class Paths:
    """`gpu_net[g][n]`, `net_gpu[n][g]`, `gpu_gpu[p][g]`, `gpu_cpu[g][c]`: paths by node index of `system`.

    `nearest` is `gpu_net` before PXN and detours: the distance of the hardware.
    """

    def __init__(self, topology: Topology, rules: Rules, settings: Settings) -> None:
        self.rules, self.settings = rules, settings
        self.system = System(topology, rules)
        self.gpus, self.nets, self.cpus = (self.system.of(kind) for kind in ("GPU", "NET", "CPU"))
        to_cpu = {cpu: self._toward(cpu) for cpu in self.cpus}
        to_gpu = {gpu: self._toward(gpu) for gpu in self.gpus}
        to_net = {net: self._toward(net) for net in self.nets}
        self.gpu_cpu = {gpu: {cpu: to_cpu[cpu][gpu] for cpu in self.cpus} for gpu in self.gpus}
        self.net_cpu = {net: {cpu: to_cpu[cpu][net] for cpu in self.cpus} for net in self.nets}
        self.cpu_gpu = {cpu: {gpu: to_gpu[gpu][cpu] for gpu in self.gpus} for cpu in self.cpus}
        self.cpu_net = {cpu: {net: to_net[net][cpu] for net in self.nets} for cpu in self.cpus}
        self.gpu_gpu = {one: {other: to_gpu[other][one] for other in self.gpus} for one in self.gpus}
        self.gpu_net = {gpu: {net: to_net[net][gpu] for net in self.nets} for gpu in self.gpus}
        self.net_gpu = {net: {gpu: to_gpu[gpu][net] for gpu in self.gpus} for net in self.nets}
        self.links = {one: {other: path.copy() for other, path in row.items()} for one, row in self.gpu_gpu.items()}
        self._divert_gpus()
        self._chip_to_chip()
        self.nearest = {gpu: {net: path.copy() for net, path in row.items()} for gpu, row in self.gpu_net.items()}
        self._through_peers_and_cpu()

    def local_cpu(self, gpu: int) -> Optional[int]:
        """The CPU with the best path to a GPU; None on a machine without CPUs in the tree."""
        local = nic_choice.best(self.gpu_cpu[gpu], self.rules)
        return min(local, key=lambda cpu: self.gpu_cpu[gpu][cpu].hops) if local else None

    def nvlink_peer(self, gpu: int) -> bool:
        """A GPU directly on NVLink, or the only one of the machine."""
        others = [other for other in self.gpus if other != gpu]
        return not others or any(self.gpu_gpu[gpu][other].kind == "NVL" for other in others)

    # the search

    def _toward(self, base: int) -> List[Path]:
        """Paths of all nodes to `base`."""
        nodes = self.system.nodes
        found = [Path("DIS", 0.0, 0) for _ in nodes]
        found[base] = Path("LOC", LOCAL_GBYTES_S, 0)
        ring = [base]
        while ring:
            following: Dict[int, None] = {}
            for index in ring:
                for link in nodes[index].links:
                    if self._closed(base, index, link, found[index]):
                        continue
                    if self._improve(base, index, link, found):
                        following[link.to] = None
            ring = list(following)
        return found

    def _closed(self, base: int, index: int, link: Link, path: Path) -> bool:
        """A path may pass one other GPU only, by NVLink, and only to a GPU."""
        nodes = self.system.nodes
        if index == base or nodes[index].kind != "GPU":
            return False
        return self.settings.nvb_disable or link.kind != "NVL" or nodes[link.to].kind != "GPU" or path.hops > 1

    def _improve(self, base: int, index: int, link: Link, found: List[Path]) -> bool:
        nodes, old, path = self.system.nodes, found[link.to], found[index]
        if link.to == base:
            return False
        step = {"NET": "LOC", "PCI": "PIX"}.get(link.kind, link.kind)
        if nodes[index].kind == "PCI" and nodes[link.to].kind == "PCI":
            step = "PXB"
        if link.kind == "PCI" and "CPU" in (nodes[index].kind, nodes[link.to].kind):
            step = "PHB"
        if nodes[index].kind == "GPU" and path.kind == "NVL" and step == "NVL" and index != base:
            step = "NVB"
        new = Path(self.rules.farther(path.kind, step), min(path.gbytes_s, link.gbytes_s), path.hops + 1)
        if self.rules.type_first:
            better = self._order(new) < self._order(old)
        else:
            better = old.gbytes_s < new.gbytes_s and (old.gbytes_s == 0 or old.hops >= new.hops)
        if better:
            found[link.to] = new
        return better

    def _order(self, path: Path) -> Tuple[int, float, int]:
        return self.rules.rank(path.kind), -path.gbytes_s, path.hops

    # what NCCL changes afterwards

    def _joined(self, first: Path, second: Path) -> Path:
        kind = self.rules.farther(first.kind, second.kind)
        if "P2C" in self.rules.types and {first.kind, second.kind} == {"PHB", "C2C"}:
            kind = "P2C"
        return Path(kind, min(first.gbytes_s, second.gbytes_s), first.hops + second.hops)

    def _divert_gpus(self) -> None:
        level = self.settings.p2p_level or self._p2p_default()
        for gpu in self.gpus:
            cpu = self.local_cpu(gpu)
            if cpu is None:
                continue
            for peer in self.gpus:
                if peer != gpu and not self.rules.within(self.gpu_gpu[peer][gpu].kind, level):
                    self.gpu_gpu[peer][gpu] = self._joined(self.gpu_cpu[peer][cpu], self.cpu_gpu[cpu][gpu])

    def _p2p_default(self) -> str:
        cpus = [self.system.nodes[index].what for index in self.cpus]
        amd = any(isinstance(cpu, Cpu) and cpu.vendor == "AuthenticAMD" for cpu in cpus)
        return "SYS" if amd and len(self.gpus) <= 2 else "PXB"

    def _chip_to_chip(self) -> None:
        if not self.rules.p2c:
            return
        for gpu in self.gpus:
            cpu = self.local_cpu(gpu)
            if cpu is None:
                continue
            nets = nic_choice.best(self.gpu_net[gpu], self.rules) if self.rules.p2c == "closest" else self.nets
            for net in nets:
                if self._is_p2c(gpu, cpu, net):
                    for path in (self.gpu_net[gpu][net], self.net_gpu[net][gpu]):
                        if not self.rules.within(path.kind, "P2C"):
                            path.kind = "P2C"

    def _is_p2c(self, gpu: int, cpu: int, net: int) -> bool:
        if self.gpu_cpu[gpu][cpu].kind != "C2C":
            return False
        if self.rules.p2c == "host-bridge":
            return self.gpu_net[gpu][net].kind == "PHB"
        return self.net_cpu[net][cpu].kind == "PHB"

    def _through_peers_and_cpu(self) -> None:
        for net in self.nets:
            for gpu in self.gpus:
                if not self.settings.pxn_disable:
                    peer = nic_choice.local_gpu(self, net)
                    if peer is not None and peer != gpu and self._pxn_helps(gpu, peer, net):
                        first, second = self.gpu_gpu[gpu][peer], self.gpu_net[peer][net]
                        joined = self._joined(first, second)
                        self.gpu_net[gpu][net] = Path("PXN", joined.gbytes_s, joined.hops, via=peer)
                near = self.rules.divert_all or self.rules.rank(self.gpu_net[gpu][net].kind) < self.rules.rank("PHB")
                if near and not gdr.decide(self, gpu, net).receive:
                    self._divert(gpu, net)

    def _pxn_helps(self, gpu: int, peer: int, net: int) -> bool:
        rules, nodes = self.rules, self.system.nodes
        own, other = self.gpu_net[gpu][net], self.gpu_net[peer][net]
        limit = "P2C" if self.settings.pxn_c2c_on(rules) else "PXB"
        return (
            rules.within(other.kind, limit)
            and (not rules.pxn_needs_gdr or gdr.decide(self, peer, net).send)
            and rules.within(self.gpu_gpu[peer][gpu].kind, "NVL")
            and nodes[peer].host == nodes[gpu].host
            and (other.gbytes_s > own.gbytes_s or not rules.within(own.kind, rules.pxn_within))
        )

    def _divert(self, gpu: int, net: int) -> None:
        cpu = self.local_cpu(gpu)
        if cpu is None:
            return
        self.net_gpu[net][gpu] = self._joined(self.net_cpu[net][cpu], self.cpu_gpu[cpu][gpu])
        self.gpu_net[gpu][net] = self._joined(self.gpu_cpu[gpu][cpu], self.cpu_net[cpu][net])
