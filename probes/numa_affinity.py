"""Every GPU has a network card near it, under its own CPU socket, alike on all nodes.

Traffic between a GPU and a card of the other socket passes the link between the sockets: half the bandwidth, no GPUDirect by default,
and one slow rank holds up all others. Where the firmware does not say which socket a device belongs to, nothing is judged.

Source: /sys/bus/pci/devices/<bdf>/numa_node and the PCI tree; NCCL's distances (ncdiag/nccl/paths.py); /proc/sys/kernel/numa_balancing,
at which NCCL itself warns (src/init.cc).
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import machine
from ncdiag.nccl.topology_view import GpuView, View
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted


class Facts(TypedDict):
    balancing: Optional[int]  # /proc/sys/kernel/numa_balancing; None: not readable
    nodes: List[str]  # node<N> in /sys/devices/system/node


def collect(host: Host) -> Facts:
    nodes = [name for name in host.names("/sys/devices/system/node") if name[4:].isdecimal()]
    try:
        balancing = host.number("/proc/sys/kernel/numa_balancing")
    except HostError:
        balancing = None
    return {"balancing": balancing, "nodes": nodes}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    shapes: Dict[str, str] = {}
    for node, facts in snapshot.each(PROBE.id):
        shown = machine.topology(snapshot, node)
        if shown is None:
            yield unknown("the PCI tree was not read", node, source="/sys/bus/pci/devices")
            continue
        if not shown.gpus:
            yield skip("no GPU on the PCI bus", node, source="/sys/bus/pci/devices")
            continue
        if facts["balancing"] == 1 and len(facts["nodes"]) > 1:
            yield _balancing(node)
        yield from _node(node, shown, snapshot.facts(node, "pci-devices")["functions"])
        shapes[node] = _shape(shown)
    yield from uneven(
        warn,
        shapes,
        "distance from each GPU to its nearest card: {own}; on the other nodes {others}",
        source="/sys/bus/pci/devices",
        cause="hca-mismatch-between-nodes",
        remedy="see `ncdiag topo live` on both: a card is missing, down, or in another slot",
    )


def _balancing(node: str) -> Finding:
    return warn(
        "the kernel moves memory between sockets (numa_balancing 1), which disturbs pinned buffers",
        node,
        source="/proc/sys/kernel/numa_balancing",
        observed=1,
        expected=0,
        cause="numa-balancing",
        remedy="sysctl kernel.numa_balancing=0",
    )


def _node(node: str, shown: View, functions: Dict[str, Dict[str, object]]) -> Iterator[Finding]:
    source = "/sys/bus/pci/devices/*/numa_node"
    real = [one for one in shown.gpus if one.own and any(nic.net.busid for nic in one.own)]
    if not shown.nets:
        yield skip(f"{counted(len(shown.gpus), 'GPU')} and no network card on the PCI bus", node, source=source)
        return
    if not real:
        yield skip("the network devices are virtual and have no place in the PCI tree", node, source=source)
        return
    places = {address: one["numa_node"] for address, one in functions.items()}
    if all(places.get(one.gpu.busid) in (None, -1) for one in real):
        yield skip(
            "the firmware does not say which socket the GPUs belong to (usual in virtual machines)", node, source=source
        )
        return
    far = [one for one in real if _nearest(shown, one) in ("SYS", "NET", "DIS")]
    for one in far:
        cards = ", ".join(nic.net.name for nic in one.own)
        yield warn(
            f"{one.gpu.label} is on NUMA node {places.get(one.gpu.busid)}, its nearest network card ({cards}) on another",
            node,
            source=source,
            device=one.gpu.busid,
            observed=_nearest(shown, one),
            expected="PIX, PXB or PHB",
            cause="gdr-disabled",
            remedy="move a card under that socket, or give the GPU's rank to a node whose card is near; see `ncdiag topo live`",
        )
    if not far:
        distances = Counter(_nearest(shown, one) for one in real)
        text = ", ".join(f"{times} x {kind}" for kind, times in distances.items())
        yield ok(f"every GPU has a network card under its own socket ({text})", node, source=source)


def _nearest(shown: View, one: GpuView) -> str:
    return min((nic.distance for nic in one.nics if nic.net.busid), key=shown.rules.rank, default="DIS")


def _shape(shown: View) -> str:
    distances = Counter(_nearest(shown, one) for one in shown.gpus)
    return ", ".join(f"{times} x {kind}" for kind, times in sorted(distances.items()))


PROBE = Probe(
    "numa-affinity",
    "Every GPU has a network card under its own socket",
    judge,
    collect,
    needs=("pci-devices", "rdma-devices", "gpus", "nccl-environment", "nccl-conf-files"),
)
