"""A topology, a version and settings as plain data: the matrix, each GPU's NICs, GPUDirect with its reasons.

The report draws this, JSON carries it, and `topology_check` judges it.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

from ncdiag.nccl import gdr, nic_choice
from ncdiag.nccl.gdr import Decision
from ncdiag.nccl.paths import Paths
from ncdiag.nccl.rules import Rules
from ncdiag.nccl.settings import Settings
from ncdiag.nccl.topology import Cpu, Gpu, Net, Pci, Topology, link_name
from ncdiag.nccl.version import dotted


class NicView(NamedTuple):
    """One NIC as one GPU sees it."""

    net: Net
    distance: str  # the hardware's path type
    used_path: str  # the path type NCCL uses: PXN through another GPU, or PHB and SYS where it goes through the CPU
    via: Optional[Gpu]  # PXN: the GPU in between
    gdr: Decision


class GpuView(NamedTuple):
    gpu: Gpu
    nics: List[NicView]  # all of the machine, in NCCL's numbering
    own: List[NicView]  # those its channels take, in their order
    gpu_paths: Dict[str, str]  # label of the other GPU -> path type

    @property
    def nearest(self) -> Optional[NicView]:
        return self.own[0] if self.own else None


class View(NamedTuple):
    topology: Topology
    rules: Rules
    settings: Settings
    gpus: List[GpuView]
    nets: List[Net]
    unused: List[Net]  # no GPU's channels take them


def view(topology: Topology, rules: Rules, settings: Settings) -> View:
    paths = Paths(topology, rules, settings)
    nets = sorted(paths.nets, key=lambda index: paths.system.net(index).dev)
    gpus = [
        _gpu(paths, gpu, nets) for gpu in sorted(paths.gpus, key=lambda index: _place(paths.system.gpu(index), index))
    ]
    taken = {id(nic.net) for one in gpus for nic in one.own}
    every = [paths.system.net(index) for index in nets]
    return View(topology, rules, settings, gpus, every, [net for net in every if id(net) not in taken])


def _place(gpu: Gpu, index: int) -> int:
    return index if gpu.dev is None else gpu.dev


def _gpu(paths: Paths, gpu: int, nets: List[int]) -> GpuView:
    nics = {net: _nic(paths, gpu, net) for net in nets}
    others = {paths.system.gpu(other).label: paths.links[gpu][other].kind for other in paths.gpus if other != gpu}
    own = [nics[net] for net in nic_choice.nets_of(paths, gpu)]
    return GpuView(paths.system.gpu(gpu), list(nics.values()), own, others)


def _nic(paths: Paths, gpu: int, net: int) -> NicView:
    path = paths.gpu_net[gpu][net]
    via = None if path.via is None else paths.system.gpu(path.via)
    return NicView(paths.system.net(net), paths.nearest[gpu][net].kind, path.kind, via, gdr.decide(paths, gpu, net))


def as_data(shown: View) -> Dict[str, Any]:
    """For JSON."""
    return {
        "nccl_version": dotted(shown.rules.version),
        "nccl_version_assumed": shown.rules.assumed,
        "origin": shown.topology.origin,
        "cpus": [{"numa": cpu.numa, "arch": cpu.arch, "vendor": cpu.vendor} for cpu in shown.topology.cpus],
        "gpus": [_gpu_data(one) for one in shown.gpus],
        "nics": [
            {
                "label": net.label,
                "name": net.name,
                "dev": net.dev,
                "busid": net.busid,
                "speed_gbits_s": net.speed_mbits_s / 1000.0 or None,
                "port": net.port,
                "guid": net.guid,
                "gdr": net.gdr,
                "merged": len(net.members) > 1,
            }
            for net in shown.nets
        ],
        "unused_nics": [net.label for net in shown.unused],
        "remarks": list(shown.topology.remarks),
        "tree": [_cpu_data(cpu) for cpu in shown.topology.cpus],
    }


def _cpu_data(cpu: Cpu) -> Dict[str, Any]:
    nets = [net.label for net in cpu.nets]
    return {"numa": cpu.numa, "nets": nets, "pci": [_pci_data(pci) for pci in cpu.pci]}


def _pci_data(pci: Pci) -> Dict[str, Any]:
    """`link` is what was trained, `link_max` what device and slot could do; equal in a dump."""
    return {
        "kind": pci.kind,
        "busid": pci.busid,
        "link": link_name(pci.current_gts or pci.gts, pci.current_width or pci.width),
        "link_max": link_name(pci.gts or pci.current_gts, pci.width or pci.current_width),
        "gpus": [gpu.label for gpu in pci.gpus],
        "nets": [net.label for net in pci.nets],
        "pci": [_pci_data(child) for child in pci.children],
    }


def _gpu_data(one: GpuView) -> Dict[str, Any]:
    gpu = one.gpu
    return {
        "label": gpu.label,
        "dev": gpu.dev,
        "rank": gpu.rank,
        "busid": gpu.busid,
        "sm": gpu.sm,
        "gdr": gpu.gdr,
        "nvlinks": sum(link.count for link in gpu.nvlinks),
        "nics": [nic.net.label for nic in one.own],
        "distance": {nic.net.label: nic.distance for nic in one.nics},
        "path": {nic.net.label: nic.used_path for nic in one.nics},
        "gpus": one.gpu_paths,
        "gpudirect": {
            nic.net.label: {
                "receive": nic.gdr.receive,
                "send": nic.gdr.send,
                "level": nic.gdr.level,
                "reasons": nic.gdr.reasons,
                "unproven": nic.gdr.unproven,
            }
            for nic in one.own
        },
    }
