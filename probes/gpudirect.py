"""GPUDirect RDMA is possible, and near enough for NCCL to use it.

With it a network card reads and writes GPU memory itself; without it every byte goes through host memory, which costs half the
bandwidth or more and shows nowhere but in the speed. NCCL wants nvidia_peermem or DMA-BUF, a GPU and a card that can, and a path
between them within NCCL_NET_GDR_LEVEL; NCCL 2.30 does not even log its decision.

Source: NCCL net_ib/gdr.cc and graph/paths.cc (ncclTopoCheckGdr) of 2.18 to 2.30; NVIDIA GPUDirect RDMA and GPU Operator guides.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import gpudirect, machine
from ncdiag.nccl.settings import integer
from ncdiag.nccl.sysfs import names, word

PEERMEM_FILES = (
    "/sys/kernel/mm/memory_peers/nv_mem/version",
    "/sys/kernel/mm/memory_peers/nv_mem_nc/version",
    "/sys/kernel/mm/memory_peers/nvidia-peermem/version",
    "/sys/module/nvidia_peermem/version",
)
"""Files by which NCCL knows that peer memory works; which of them it looks at changed in 2.22 and 2.23."""

OPTIONS = ("CONFIG_PCI_P2PDMA", "CONFIG_DMABUF_MOVE_NOTIFY")


class Facts(TypedDict):
    """What decides whether a card can reach GPU memory. None: not readable here."""

    has_gpu_driver: bool  # /sys/module/nvidia or /proc/driver/nvidia exists
    peermem_files: List[str]  # of PEERMEM_FILES
    modules_known: bool  # /sys/module can be listed, so that an absent module is known to be absent
    open_modules: Optional[bool]  # `Open Kernel Module` in /proc/driver/nvidia/version
    kernel: Optional[List[int]]  # [6, 1] of /proc/version
    options: Dict[str, str]  # y, m or n of OPTIONS in /boot/config-<release>; empty where that is not there


def collect(host: Host) -> Facts:
    host.list("/sys")  # without it nothing can be said
    version = word(host, "/proc/driver/nvidia/version")
    release = re.match(r"Linux version ((\d+)\.(\d+)\S*)", word(host, "/proc/version") or "")
    return {
        "has_gpu_driver": host.exists("/sys/module/nvidia") or version is not None,
        "peermem_files": [path for path in PEERMEM_FILES if host.exists(path)],
        "modules_known": bool(names(host, "/sys/module")),
        "open_modules": None if version is None else "Open Kernel Module" in version,
        "kernel": [int(release.group(2)), int(release.group(3))] if release else None,
        "options": _options(host, release.group(1)) if release else {},
    }


def _options(host: Host, release: str) -> Dict[str, str]:
    try:
        text = host.read(f"/boot/config-{release}")
    except HostError:
        return {}
    found = {name: "n" for name in OPTIONS}
    for name, value in re.findall(r"^(CONFIG_\w+)=([ym])$", text, re.M):
        if name in found:
            found[name] = value
    return found


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        if not facts["has_gpu_driver"]:
            yield skip("no NVIDIA driver on this node", node, source="/sys/module/nvidia")
        elif not any(True for _ in machine.ports(snapshot, node)):
            yield skip("no RDMA device on this node", node, source="/sys/class/infiniband")
        elif all(
            one.port["link_layer"] not in ("InfiniBand", "Ethernet", None) for one in machine.ports(snapshot, node)
        ):
            yield skip(
                "the RDMA devices are neither InfiniBand nor RoCE: their network plugin has a way of its own (EFA: its driver, "
                "FI_EFA_USE_DEVICE_RDMA)",
                node,
                source="/sys/class/infiniband/*/ports/*/link_layer",
            )
        else:
            yield from _node(snapshot, node, facts)


def _node(snapshot: Snapshot, node: str, facts: Facts) -> Iterator[Finding]:
    ways = gpudirect.ways(facts)
    source = "/sys/module/nvidia_peermem, /proc/driver/nvidia/version, /proc/version"
    dmabuf_off = integer(machine.values(snapshot, node).get("NCCL_DMABUF_ENABLE", "")) == 0
    if ways.possible is False or (dmabuf_off and ways.peermem is False):
        why = "; ".join(ways.why) + ("; NCCL_DMABUF_ENABLE=0 rules DMA-BUF out" if dmabuf_off else "")
        yield warn(
            f"GPUDirect RDMA is not possible: {why}",
            node,
            source=source,
            observed=ways.why,
            cause="gdr-disabled",
            remedy=(
                "modprobe nvidia_peermem (if it says Invalid argument, the driver was built before the RDMA stack: reinstall "
                "it), or install the open kernel modules and use DMA-BUF"
            ),
        )
        return
    if ways.possible is None:
        yield unknown(f"whether GPUDirect RDMA is possible cannot be told: {'; '.join(ways.why)}", node, source=source)
    yield from _paths(snapshot, node, ways)


def _paths(snapshot: Snapshot, node: str, ways: gpudirect.Ways) -> Iterator[Finding]:
    """NCCL's decision for each GPU and the cards that it will take."""
    shown = machine.topology(snapshot, node)
    source = "/sys/bus/pci/devices and NCCL_NET_GDR_LEVEL"
    if shown is None or not shown.gpus:
        yield unknown("the place of the GPUs in the PCI tree cannot be seen", node, source=source)
        return
    off: List[str] = []
    for one in shown.gpus:
        off += [f"{one.gpu.label}/{nic.net.name}: {reason}" for nic in one.own for reason in nic.gdr.reasons]
    if off:
        more = f" and {len(off) - 1} more" if len(off) > 1 else ""
        yield warn(
            f"NCCL will not use GPUDirect RDMA everywhere: {off[0]}{more}",
            node,
            source=source,
            observed=off,
            cause="gdr-disabled",
            remedy="see `ncdiag topo live`; NCCL_NET_GDR_LEVEL raises the distance where the platform lets peer traffic through",
        )
    elif ways.possible:
        by = " and ".join(name for name, yes in (("DMA-BUF", ways.dmabuf), ("nvidia_peermem", ways.peermem)) if yes)
        yield ok(f"GPUDirect RDMA by {by}, between every GPU and its cards", node, source=source)


PROBE = Probe(
    "gpudirect",
    "GPUDirect RDMA is possible and near enough",
    judge,
    collect,
    needs=("rdma-devices", "nccl-environment", "nccl-conf-files", "pci-devices", "gpus"),
)
