"""NCCL topology dumps (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`) as a `Topology`.

Source: src/graph/xml.cc and topo.cc of v2.18.3-1 to v2.30.7-1; attributes that are not known are passed over.
"""

from __future__ import annotations

from typing import List, Optional

from ncdiag.nccl.topology import Cpu, Gpu, Net, Nvlink, Pci, Topology, transfer_rate
from ncdiag.nccl.xml_reader import Element, NotNcclXml, read_xml

XML_VERSION = 1  # NCCL_TOPO_XML_VERSION in all of them
MAX_NCCL_ELEMENTS = 256  # per rank; a larger NCCL_TOPO_FILE stops NCCL 2.30 with "XML parser is limited to 256 nodes"
MAX_DEVICES = 640  # NCCL_TOPO_MAX_NODES of a kind in 2.30; the paths of more would take minutes
_KNOWN = frozenset(("cpu", "pci", "gpu", "nic", "net", "nvlink", "c2c", "pcilink", "gin"))


def looks_like_topology(text: str) -> bool:
    """True for text with a topology dump in it; `text` may be only the start of a file."""
    return "<system" in text and ("<cpu" in text or "version=" in text)


def parse_topology(text: str) -> Topology:
    """Raises NotNcclXml (a ValueError) if there is no `<system>` with anything of NCCL's below it, or more than NCCL takes."""
    document = read_xml(text, "system")
    root = document.root
    topology = Topology(origin="dump", remarks=list(document.remarks))
    if root.integer("version") != XML_VERSION:
        topology.remarks.append(
            f"line {root.line}: <system> has version {root.text('version', 'none')!r}; NCCL accepts {XML_VERSION} only"
        )
    builder = _Builder(topology)
    for child in root.children:
        if child.name == "cpu":
            topology.cpus.append(builder.cpu(child))
        else:
            builder.strange(child, "system")
    if not topology.cpus and not document.cut:
        raise NotNcclXml("<system> holds no <cpu>: this is not NCCL's topology")
    for devices, what in ((topology.gpus, "GPUs"), (topology.nets, "network devices")):
        if len(devices()) > MAX_DEVICES:
            raise NotNcclXml(f"{len(devices())} {what} in one topology; NCCL takes {MAX_DEVICES} at most")
    _tell_hosts_apart(topology)
    elements = _size(root)
    if elements > MAX_NCCL_ELEMENTS:
        topology.remarks.append(f"{elements} elements; as NCCL_TOPO_FILE NCCL may refuse more than {MAX_NCCL_ELEMENTS}")
    return topology


def _tell_hosts_apart(topology: Topology) -> None:
    """Device numbers and names repeat from machine to machine; with several in one dump each gets its machine's number."""
    hosts = list(dict.fromkeys(cpu.host_hash for cpu in topology.cpus))
    if len(hosts) < 2:
        return
    for cpu in topology.cpus:
        number = str(hosts.index(cpu.host_hash))
        nets = list(cpu.nets)
        for top in cpu.pci:
            for pci in top.walk():
                nets += pci.nets
                for gpu in pci.gpus:
                    gpu.host = number
        for net in nets:
            net.host = number


def _size(element: Element) -> int:
    return 1 + sum(_size(child) for child in element.children)


class _Builder:
    """Elements to dataclasses. GPUs and NICs that a file names only by their PCI class are counted as such."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.next_net = 0

    def strange(self, element: Element, below: str) -> None:
        if len(self.topology.remarks) < 20:
            known = "" if element.name in _KNOWN else "unknown to NCCL; "
            what = f"<{element.name}> below <{below}>: {known}NCCL ignores it there"
            self.topology.remarks.append(f"line {element.line}: {what}")

    def cpu(self, element: Element) -> Cpu:
        numa = element.integer("numaid")
        cpu = Cpu(
            numa=-1 if numa is None else numa,
            arch=element.text("arch"),
            vendor=element.text("vendor"),
            family=element.integer("familyid"),
            model=element.integer("modelid"),
            affinity=element.text("affinity"),
            host_hash=element.text("host_hash"),
        )
        for child in element.children:
            if child.name == "pci":
                cpu.pci.append(self.pci(child))
            elif child.name == "nic":
                cpu.nets += self.nets(child, "")
            else:
                self.strange(child, "cpu")
        return cpu

    def pci(self, element: Element) -> Pci:
        busid = element.text("busid").lower()
        pci = Pci(
            busid=busid,
            pci_class=element.text("class").lower(),
            ids=(
                element.text("vendor").lower(),
                element.text("device").lower(),
                element.text("subsystem_vendor").lower(),
                element.text("subsystem_device").lower(),
            ),
            gts=transfer_rate(element.text("link_speed")),
            width=element.integer("link_width"),
        )
        for child in element.children:
            if child.name == "pci":
                pci.children.append(self.pci(child))
            elif child.name == "gpu":
                pci.gpus.append(self.gpu(child, busid))
            elif child.name == "nic":
                pci.nets += self.nets(child, busid)
            elif child.name == "pcilink":
                pci.peers.append(child.text("target").lower())
            else:
                self.strange(child, "pci")
        self.by_class(pci)
        return pci

    def by_class(self, pci: Pci) -> None:
        """A file for NCCL_TOPO_FILE often gives only the PCI tree; NCCL adds the GPUs and NICs it finds there."""
        if pci.children or pci.gpus or pci.nets:
            return
        if pci.pci_class.startswith("0x03"):
            pci.gpus.append(Gpu(busid=pci.busid))
        elif pci.pci_class.startswith("0x02"):
            pci.nets.append(Net(name=pci.busid, dev=self.net_number(None), busid=pci.busid))

    def gpu(self, element: Element, busid: str) -> Gpu:
        gpu = Gpu(
            busid=busid,
            dev=element.integer("dev"),
            sm=element.integer("sm"),
            rank=element.integer("rank"),
            gdr=element.flag("gdr"),
        )
        for child in element.children:
            if child.name == "nvlink":
                gpu.nvlinks.append(
                    Nvlink(child.text("target").lower(), child.integer("count") or 0, child.text("tclass").lower())
                )
            elif child.name == "c2c":
                gpu.c2c_gbytes_s += (child.integer("bw") or 0) * (child.integer("count") or 0) / 1000.0
            else:
                self.strange(child, "gpu")
        return gpu

    def nets(self, element: Element, busid: str) -> List[Net]:
        found = []
        for child in element.children:
            if child.name not in ("net", "gin"):
                self.strange(child, "nic")
                continue
            if child.name == "gin":
                continue
            found.append(
                Net(
                    name=child.text("name") or f"net{child.text('dev', '?')}",
                    dev=self.net_number(child.integer("dev")),
                    busid=busid,
                    speed_mbits_s=child.integer("speed") or 0,
                    port=child.integer("port"),
                    guid=child.text("guid").lower(),
                    gdr=child.flag("gdr") or False,  # absent counts as 0
                    used=child.flag("net") is not False,
                )
            )
        return found

    def net_number(self, given: Optional[int]) -> int:
        number = self.next_net if given is None else given
        self.next_net = max(self.next_net, number + 1)
        return number
