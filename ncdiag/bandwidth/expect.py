"""What the hardware should give: link rate x devices x efficiency by transport, from what NCCL itself chose and read. Every number has a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ncdiag.bandwidth.job import Outcome
from ncdiag.nccl.log import NcclLog
from ncdiag.nccl.log_facts import Communicator, Link, NcclFacts, Process
from ncdiag.nccl.topology import Gpu, Topology, link_name
from ncdiag.nccl.topology_xml import parse_topology
from ncdiag.nodeset import fold

_NVLINK = ((100, 50.0, 40.1), (90, 25.0, 20.6), (86, 14.06, 12.0), (80, 25.0, 20.0), (70, 25.0, 20.0), (60, 20.0, 18.0))
"""Compute capability, GB/s a link and direction (data sheets), of which NCCL counts on (src/graph/topo.h)."""
IB_EFFICIENCY = 0.97
"""4096 bytes of payload in a packet of about 4096 + 30 header and CRC bytes, link-level control taken off (IBTA)."""
SHM_EFFICIENCY = 0.60
"""Of NCCL's PCIe figure, because both GPUs copy through host memory: nccl-tests 2.19.6 got 27.9 of 48 GB/s on 2 H200 (PCIe 5, virtual machine)."""
SLOW, SLOW_INSIDE, VERY_SLOW = 0.80, 0.70, 0.50
"""Measured over expected: a warning below the first (the second for links within a node, whose full rate only sizes of GiB reach: nccl-tests got 285
GB/s at 128 MiB and 316 at 512 MiB of 371 on 2 H200), a failure below the last."""


@dataclass(frozen=True)
class Term:
    """One factor of the expectation."""

    what: str
    value: float
    unit: str
    source: str


@dataclass
class Expectation:
    """What busbw should be at large sizes, in GB/s; None: it cannot be said, `why` says why."""

    busbw_gbytes_s: float | None = None
    bound: str = ""
    """What limits it, in words: `2 x 400 Gb/s`."""
    terms: list[Term] = field(default_factory=list)
    chosen: str = ""
    """The transport that carries it, as NCCL's log has it."""
    remarks: list[str] = field(default_factory=list)
    """What NCCL chose that costs speed, with the place."""
    causes: list[tuple[str, str, str]] = field(default_factory=list)
    """(cause, node, sentence) of such choices."""
    why: str = ""
    slow_below: float = SLOW
    """Measured over expected, below which it is slow."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_log(outcome: Outcome, names: Sequence[str]) -> NcclFacts:
    """NCCL's own log of the run. `names`: the node of every rank."""
    parser = NcclLog()
    for number, rank in enumerate(outcome.ranks):
        parser.feed(f"{names[number]}, rank {number}", rank.log)
    return parser.finish()


def expect(outcome: Outcome, names: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]) -> Expectation:
    """`names`: the node of every rank; `nodes`: node -> what its agent told (`links`: interface -> speed in Mbit/s, MTU, `virtual`; `hcas`)."""
    facts = read_log(outcome, names)
    if not facts.communicators:
        return Expectation(why="NCCL's log tells of no communicator")
    group = max(facts.communicators, key=lambda one: len(one.ranks))
    topologies = {
        name: _topology(rank.topology) for name, rank in zip(names, outcome.ranks, strict=True) if rank.topology
    }
    expectation = Expectation()
    inside = _inside(group, topologies, expectation)
    across = _across(group, facts, names, topologies, nodes, expectation)
    known = [found for found in (inside, across) if found is not None]
    needs_network = any(link.transport.startswith(("NET/", "COLLNET/")) for rank in group.ranks for link in rank.links)
    if not known or (needs_network and across is None):
        expectation.why = expectation.why or "no link rate could be read"
        return expectation
    expectation.busbw_gbytes_s, expectation.bound, terms = min(known, key=lambda found: found[0])
    expectation.terms = terms
    expectation.slow_below = SLOW if across is not None and across[0] == expectation.busbw_gbytes_s else SLOW_INSIDE
    return expectation


def expect_gloo(names: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]) -> Expectation:
    """CPU ranks over TCP: the interface that each node is reached by, where it is a real one."""
    if len(set(names)) < 2:
        return Expectation(why="all ranks are on one machine, where gloo is bound by the CPUs")
    expectation = Expectation(chosen="gloo over TCP")
    found = []
    for node in dict.fromkeys(names):
        facts = nodes.get(node, {})
        name = next(
            (name for name, address in facts.get("interfaces", {}).items() if address == facts.get("address")), None
        )
        link = facts.get("links", {}).get(name or "", {})
        if name is None or link.get("virtual", True) or not (link.get("speed") or 0) > 0:
            return Expectation(why=f"{name or 'the interface'} of {node} is virtual and has no rate of its own")
        share = socket_efficiency(link.get("mtu") or 1500)
        terms = [
            Term(f"{node} {name}", link["speed"] / 8000, "GB/s", f"/sys/class/net/{name}/speed"),
            Term("payload", share, "of it", "TCP over IPv4"),
        ]
        found.append((link["speed"] / 8000 * share, f"{link['speed'] / 1000:g} Gb/s", terms))
    expectation.busbw_gbytes_s, expectation.bound, expectation.terms = min(found, key=lambda one: one[0])
    return expectation


Found = tuple[float, str, list[Term]]


def _topology(xml: str) -> Topology | None:
    try:
        return parse_topology(xml)
    except ValueError:
        return None


def _inside(group: Communicator, topologies: Mapping[str, Topology | None], expectation: Expectation) -> Found | None:
    """The links between GPUs of one node, None where no rank has a neighbour there or nothing is known of them."""
    links = [
        link
        for rank in group.ranks
        for link in rank.links
        if not link.p2p and link.transport.startswith(("P2P", "SHM"))
    ]
    topology = next((one for one in topologies.values() if one), None)
    if not links or topology is None:
        return None
    by_shm = next((link for link in links if link.transport.startswith("SHM")), None)
    expectation.chosen = expectation.chosen or (by_shm or links[0]).transport
    gpus = topology.gpus()
    if by_shm is None and gpus and all(gpu.nvlinks for gpu in gpus):
        return _nvlink(gpus[0], any(rank.nvls_used for rank in group.ranks), len(group.ranks))
    cards = [pci for _, pci in topology.functions() if pci.gpus]
    if not cards:
        return None
    slowest = min(cards, key=lambda pci: pci.gbytes_s)
    terms = [
        Term(
            f"PCIe {link_name(slowest.gts, slowest.width)} of a GPU, what NCCL counts on",
            slowest.gbytes_s,
            "GB/s",
            "topology dump",
        )
    ]
    if by_shm is None:
        return slowest.gbytes_s, "PCIe between the GPUs", terms
    if any(gpu.nvlinks for gpu in gpus):
        expectation.causes.append(
            ("p2p-broken", "", "the GPUs have NVLink, and NCCL goes through shared memory (SHM): P2P is off or refused")
        )
    terms.append(Term("copies through host memory", SHM_EFFICIENCY, "of it", "measured on 2 H200"))
    return slowest.gbytes_s * SHM_EFFICIENCY, "PCIe, through shared memory", terms


def _nvlink(gpu: Gpu, nvls: bool, ranks: int) -> Found:
    count = sum(link.count for link in gpu.nvlinks)
    raw, counted = next(((raw, net) for sm, raw, net in _NVLINK if (gpu.sm or 0) >= sm), (25.0, 20.0))
    terms = [
        Term("NVLinks of a GPU", count, "links", "topology dump"),
        Term("NVLink, one direction", raw, "GB/s a link", f"data sheet, compute capability {gpu.sm}"),
        Term("payload", counted / raw, "of it", "NCCL's own constant, src/graph/topo.h"),
    ]
    value = count * counted
    if nvls:
        terms.append(
            Term("NVLink SHARP: the switch adds", 2 * (ranks - 1) / ranks, "times", "each GPU sends its data once")
        )
        value *= min(2 * (ranks - 1) / ranks, 1.3)
    return value, f"{count} NVLink{'s' if count != 1 else ''}", terms


def _across(
    group: Communicator,
    facts: NcclFacts,
    names: Sequence[str],
    topologies: Mapping[str, Topology | None],
    nodes: Mapping[str, Mapping[str, Any]],
    expectation: Expectation,
) -> Found | None:
    """The network: the devices in use on the node that has the least."""
    per_node: dict[str, dict[int, tuple[Link, Process]]] = {}
    for rank in group.ranks:
        node = names[rank.rank] if rank.rank < len(names) else str(rank.node)
        for link in rank.links:
            if link.transport.startswith("NET/") and not link.p2p:
                per_node.setdefault(node, {})[link.device or 0] = (link, facts.processes[rank.process])
    if not per_node:
        return None
    found: list[Found] = []
    for node, devices in per_node.items():
        expectation.chosen = next(iter(devices.values()))[0].transport
        one = _node_network(node, devices, topologies.get(node), nodes.get(node, {}).get("links", {}), expectation)
        if one is None:
            return None
        found.append(one)
    _costly(per_node, nodes, expectation)
    return min(found, key=lambda one: one[0])


def _node_network(
    node: str,
    devices: Mapping[int, tuple[Link, Process]],
    topology: Topology | None,
    interfaces: Mapping[str, Any],
    expectation: Expectation,
) -> Found | None:
    total, terms, rates = 0.0, [], []
    nets = {net.dev: net for net in topology.nets()} if topology else {}
    for number, (link, process) in sorted(devices.items()):
        device = next((one for one in process.net_devices if one.index == number), None)
        name = device.name if device else f"device {number}"
        if link.transport == "NET/Socket":
            interface = interfaces.get(name, {})
            if interface.get("virtual", True) or not (interface.get("speed") or 0) > 0:
                expectation.why = f"{name} of {node} is a virtual interface, which has no rate of its own"
                return None
            mbits, source = float(interface["speed"]), f"/sys/class/net/{name}/speed"
            share, reason = (
                socket_efficiency(interface.get("mtu") or 1500),
                f"TCP over IPv4 with MTU {interface.get('mtu') or 1500}",
            )
        else:
            net = nets.get(number)
            speed = (device.speed_mbits_s if device else None) or (
                net.speed_mbits_s if net and net.speed_mbits_s > 0 else None
            )
            if not speed:
                expectation.why = f"the rate of {name} of {node} is neither in NCCL's log nor in its topology dump"
                return None
            mbits, source, share, reason = (
                float(speed),
                f"NCCL: {name}",
                IB_EFFICIENCY,
                "headers and CRC of 4096-byte packets",
            )
        terms += [Term(f"{node} {name}", mbits / 8000, "GB/s", source), Term("payload", share, "of it", reason)]
        rates.append(f"{mbits / 1000:g} Gb/s")
        total += mbits / 8000 * share
    bound = f"{len(rates)}×{rates[0]}" if len(set(rates)) == 1 and len(rates) > 1 else " + ".join(rates)
    return total, bound, terms


def socket_efficiency(mtu: int) -> float:
    """Payload over what is on the wire: IPv4 and TCP with time stamps take 52 bytes of the MTU, Ethernet another 38.

    >>> round(socket_efficiency(1500), 3), round(socket_efficiency(9000), 3)
    (0.941, 0.99)
    """
    return (mtu - 52) / (mtu + 38)


def _costly(
    per_node: Mapping[str, Mapping[int, tuple[Link, Process]]],
    nodes: Mapping[str, Mapping[str, Any]],
    expectation: Expectation,
) -> None:
    """What was chosen that costs speed: RDMA without GPUDirect, sockets where there is RDMA."""
    plain = [
        node
        for node, devices in per_node.items()
        if any(link.transport == "NET/IB" and not link.gdr for link, _ in devices.values())
    ]
    if plain:
        text = f"NET/IB without GDR on {fold(plain)}"
        expectation.remarks.append(text)
        expectation.causes += [("gdr-disabled", node, text) for node in plain]
    sockets = [
        node
        for node, devices in per_node.items()
        if any(link.transport == "NET/Socket" for link, _ in devices.values())
    ]
    rdma = [node for node in sockets if nodes.get(node, {}).get("hcas")]
    if rdma:
        text = f"TCP sockets on {fold(rdma)}, which have active RDMA ports"
        expectation.remarks.append(text)
        expectation.causes += [("net-fallback-slow", node, text) for node in rdma]
