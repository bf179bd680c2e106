"""One machine's topology as NCCL describes it: CPUs (NUMA nodes), the PCI devices below them, GPUs and NICs.

The same tree comes from a dump (`topology_xml`) and from a live machine's sysfs (`topology_live`); everything that
judges or draws it (`paths`, `gdr`, `nic_choice`, `topology_check`) sees only this.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Iterator, List, Optional, Tuple

#: Per-lane transfer rate to PCIe generation.
GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}

SOCKETS_ONLY = "no usable RDMA port: the NICs shown are those of the socket transport"
"""The remark on a machine whose traffic is TCP: neither distance nor GPUDirect matters to it."""

_GTS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s")


@dataclass
class Nvlink:
    """Links from one GPU to one other device."""

    target: str  # bus id of the peer GPU or switch; fffffff:ffff:ff where it is hidden
    count: int
    target_class: str  # PCI class: 0x03… GPU, 0x068000 NVSwitch, 0x068001 CPU

    @property
    def to(self) -> str:
        if self.target_class.startswith("0x03"):
            return "gpu"
        return "cpu" if self.target_class.startswith("0x068001") else "nvswitch"


@dataclass
class Gpu:
    """One GPU. Numbers that the source does not give are None."""

    busid: str
    dev: Optional[int] = None  # NVML index
    sm: Optional[int] = None  # compute capability, 90 for 9.0
    rank: Optional[int] = None
    gdr: Optional[bool] = None  # the GPU supports GPUDirect RDMA
    nvlinks: List[Nvlink] = field(default_factory=list)
    c2c_gbytes_s: float = 0.0  # chip-to-chip link to the CPU; 0: none
    host: str = ""  # "0", "1", … in a dump of several machines (multi-node NVLink), else ""

    @property
    def label(self) -> str:
        number = self.busid if self.dev is None else str(self.dev)
        return f"GPU {self.host}/{number}" if self.host else f"GPU {number}"


@dataclass
class Net:
    """One network device as NCCL numbers them (`NET/IB/<dev>`)."""

    name: str
    dev: int
    busid: str = ""  # "" for a virtual device directly below a CPU
    speed_mbits_s: int = 0  # 0 and less: not known; NCCL then assumes 10000
    port: Optional[int] = None
    guid: str = ""  # ports of one card share it
    gdr: Optional[bool] = None  # plugin and driver allow GPUDirect on it; None: the source cannot tell
    used: bool = True  # False: not for plain network use (attribute net="0")
    host: str = ""  # as for a GPU

    @property
    def label(self) -> str:
        return f"{self.host}/{self.name}" if self.host else self.name

    @property
    def members(self) -> Tuple[str, ...]:
        """The physical ports of a merged device: `mlx5_0+mlx5_1` has two."""
        return tuple(self.name.split("+"))


@dataclass
class Pci:
    """One PCI function: a switch port, or the carrier of a GPU or of NICs."""

    busid: str  # domain:bus:device.function
    pci_class: str = ""
    ids: Tuple[str, str, str, str] = ("", "", "", "")  # vendor, device, subsystem vendor, subsystem device
    gts: Optional[float] = None  # per-lane rate; in a dump the least of what device and upstream port can do
    width: Optional[int] = None  # lanes, likewise; 0 and None: not known
    children: List[Pci] = field(default_factory=list)
    gpus: List[Gpu] = field(default_factory=list)
    nets: List[Net] = field(default_factory=list)
    peers: List[str] = field(default_factory=list)  # bus ids joined by a direct link between two switches
    current_gts: Optional[float] = None  # trained, only from a live machine
    current_width: Optional[int] = None

    @property
    def kind(self) -> str:
        """gpu, nic, nvswitch or switch: by what it carries, then by class as NCCL does."""
        if self.gpus:
            return "gpu"
        if self.nets:
            return "nic"
        if self.pci_class.startswith("0x03"):
            return "gpu"
        if self.pci_class.startswith("0x02"):
            return "nic"
        return "nvswitch" if self.pci_class.startswith("0x068000") else "switch"

    @property
    def gbytes_s(self) -> float:
        """NCCL's figure for this link: lanes times its per-lane value, Gen3 and x16 where unknown."""
        per_lane = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}.get(self.gts or 0.0, 60)
        return (self.width or 16) * per_lane / 80.0

    def walk(self) -> Iterator[Pci]:
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass
class Cpu:
    """One NUMA node; numa -1 where the firmware names none (common in VMs)."""

    numa: int
    arch: str = ""
    vendor: str = ""
    family: Optional[int] = None
    model: Optional[int] = None
    affinity: str = ""  # hex mask in sysfs form
    host_hash: str = ""  # machines of one dump differ in it (multi-node NVLink)
    pci: List[Pci] = field(default_factory=list)
    nets: List[Net] = field(default_factory=list)  # virtual ones without a PCI parent


@dataclass
class Topology:
    """One dump or one machine."""

    cpus: List[Cpu] = field(default_factory=list)
    origin: str = "dump"  # "dump" or "live"
    remarks: List[str] = field(default_factory=list)  # what the reader of the source had to say

    @property
    def source(self) -> str:
        return "topology dump" if self.origin == "dump" else "/sys/bus/pci/devices"

    def functions(self) -> Iterator[Tuple[Cpu, Pci]]:
        for cpu in self.cpus:
            for top in cpu.pci:
                for pci in top.walk():
                    yield cpu, pci

    def gpus(self) -> List[Gpu]:
        return [gpu for _, pci in self.functions() for gpu in pci.gpus]

    def nets(self) -> List[Net]:
        """All network devices, in NCCL's numbering."""
        found = [net for _, pci in self.functions() for net in pci.nets]
        found += [net for cpu in self.cpus for net in cpu.nets]
        return sorted(found, key=lambda net: net.dev)


def transfer_rate(text: str) -> Optional[float]:
    """GT/s per lane of `16.0 GT/s PCIe`, `16 GT/s`; None for `Unknown` and others."""
    match = _GTS.match(text)
    return float(match.group(1)) if match else None


def link_name(gts: Optional[float], width: Optional[int]) -> str:
    """`Gen5 x16`, with `?` for what is not known."""
    generation = GENERATIONS.get(gts or 0.0)
    return f"Gen{generation if generation else '?'} x{width if width else '?'}"
