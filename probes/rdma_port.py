"""RDMA ports are up and equally fast.

NCCL takes only ports in state ACTIVE and passes the others over without a word, so a port that is down on one node of a job
means fewer rails there, slow collectives, or ranks that wait for each other with unequal sets. A port that is down on every node
is not cabled and does not matter.

Source: /sys/class/infiniband (kernel Documentation/ABI/stable/sysfs-class-infiniband); NCCL net_ib, ncclIbInit: state, link layer.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nodeset import counted
from ncdiag.probes.rdma_devices import CLASS, Device, Facts, Port

Located = Tuple[str, Device, Port]


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = dict(snapshot.each("rdma-devices"))
    if not any(facts["devices"] for facts in nodes.values()):
        for node, facts in nodes.items():
            yield _no_device(snapshot, node, facts)
        return
    ports = [
        (node, device, port) for node, facts in nodes.items() for device in facts["devices"] for port in device["ports"]
    ]
    active = Active(ports)
    for node, facts in nodes.items():
        own = [(node, device, port) for device in facts["devices"] for port in device["ports"]]
        if not facts["devices"]:
            yield fail(
                f"no RDMA device, while other nodes have {_examples(nodes)}",
                node,
                source=CLASS,
                observed=[],
                cause="rdma-unavailable",
                remedy=_MISSING,
            )
            continue
        problems = [finding for located in own for finding in _port_findings(located, own, active, len(nodes))]
        problems += _without_ports(node, facts)
        yield from problems
        yield from _together(node, own)
        if not any(finding.status.severity > 1 for finding in problems):
            count = sum(port["state"] == "ACTIVE" for _, _, port in own)
            if count:
                yield ok(
                    f"{counted(count, 'RDMA port')} ACTIVE ({_rates(own)})",
                    node,
                    source=CLASS,
                    observed=count,
                    unit="ports",
                )


def _without_ports(node: str, facts: Facts) -> Iterator[Finding]:
    bare = [device["name"] for device in facts["devices"] if not device["ports"]]
    if bare:
        yield unknown(f"the ports of {', '.join(bare[:8])} cannot be read", node, source=f"{CLASS}/*/ports")


_MISSING = (
    "load the card's driver (modprobe mlx5_ib), give the container /dev/infiniband and the host's devices, "
    "or see lspci whether the card is there at all"
)


def _no_device(snapshot: Snapshot, node: str, facts: Facts) -> Finding:
    pci = snapshot.facts(node, "pci-devices") or {"functions": {}}
    cards = sorted(address for address, one in pci["functions"].items() if one["kind"] == "nic" and _speaks_rdma(one))
    if cards:
        return warn(
            f"network cards that speak RDMA ({', '.join(cards)}) but no RDMA device",
            node,
            source=CLASS,
            observed=cards,
            cause="rdma-unavailable",
            remedy=_MISSING,
        )
    why = "the folder is empty" if facts["has_class"] else "no RDMA driver is loaded, or the container hides it"
    return skip(f"no RDMA device on this node or any other ({why}); NCCL will use sockets", node, source=CLASS)


def _speaks_rdma(function: Dict[str, Any]) -> bool:
    """Bound to the Ethernet half of an RDMA driver, or an InfiniBand controller by class."""
    return function["driver"] in ("mlx5_core", "mlx4_core", "efa") or function["pci_class"].startswith("0x0207")


def _examples(nodes: Dict[str, Facts]) -> str:
    names = Counter(device["name"] for facts in nodes.values() for device in facts["devices"])
    return ", ".join(sorted(names)[:4])


def _rates(ports: List[Located]) -> str:
    counted = Counter(
        port["rate_gbits_s"] for _, _, port in ports if port["state"] == "ACTIVE" and port["rate_gbits_s"]
    )
    return ", ".join(f"{times} x {rate:g} Gb/s" for rate, times in sorted(counted.items())) or "rate not given"


class Active:
    """The active ports of all nodes, counted once."""

    def __init__(self, ports: List[Located]) -> None:
        up = [(device, port) for _, device, port in ports if port["state"] == "ACTIVE"]
        self.names = {(device["name"], port["number"]) for device, port in up}
        self._rates: Dict[Any, Counter[float]] = {}
        for device, port in up:
            if port["rate_gbits_s"]:
                self._rates.setdefault((device["board"], port["link_layer"]), Counter())[port["rate_gbits_s"]] += 1

    def usual(self, device: Device, port: Port) -> Optional[float]:
        """The most frequent rate of ports of that kind, None where fewer than two have it."""
        rate, times = self._rates[device["board"], port["link_layer"]].most_common(1)[0]
        return rate if times >= 2 else None


def _port_findings(located: Located, own: List[Located], active: Active, nodes: int) -> Iterator[Finding]:
    node, device, port = located
    name = f"{device['name']}:{port['number']}"
    source = f"{CLASS}/{device['name']}/ports/{port['number']}"
    if port["state"] is None:
        yield unknown(f"{name}: its state cannot be read", node, source=source, device=device["name"])
    elif port["state"] != "ACTIVE":
        yield _down(located, name, source, own, active, nodes)
    elif device["node_type"] == "RNIC":
        yield warn(
            f"{name}: an iWARP device; NCCL connects by queue pairs of its own, which iWARP refuses (ibv_modify_qp fails)",
            node,
            source=f"{CLASS}/{device['name']}/node_type",
            device=device["name"],
            observed="RNIC",
            expected="CA",
            cause="ib-qp-setup-failed",
            remedy=f"switch the card to RoCE (irdma: devlink dev param set <card> name enable_roce value true cmode driverinit), or "
            f"leave it out with NCCL_IB_HCA=^{device['name']}",
        )
    elif port["link_layer"] is None:
        yield unknown(
            f"{name}: its link layer cannot be read", node, source=f"{source}/link_layer", device=device["name"]
        )
    else:
        yield from _slow(located, name, source, active)
        if port["link_layer"] == "InfiniBand" and port["sm_lid"] == "0x0":
            yield warn(
                f"{name}: ACTIVE, but no subnet manager is known (sm_lid 0x0)",
                node,
                source=source,
                device=device["name"],
                observed="0x0",
                cause="ib-link-or-hca-fault",
                remedy="see that a subnet manager runs: sminfo, ibstat",
            )


def _down(located: Located, name: str, source: str, own: List[Located], active: Active, nodes: int) -> Finding:
    node, device, port = located
    state = f"{port['state']}, {port['phys_state'] or 'physical state not given'}"
    remedy = _REMEDIES.get(port["phys_state"] or "", "see ibstat and the switch port; replace cable or optics")
    if port["phys_state"] == "LinkUp" and port["link_layer"] == "Ethernet":
        remedy = f"see that {' and '.join(port['netdevs'][:2]) or 'its interface'} is up and has a carrier (ip -br link), and the kernel log"
    if port["phys_state"] == "Disabled":
        remedy = _switch_on(device, port)
    siblings = [one for one in own if one[2] is not port and one[1]["board"] == device["board"]]
    up = sum(one[2]["state"] == "ACTIVE" for one in siblings)

    def bad(made: Callable[..., Finding], text: str, remedy: str = remedy) -> Finding:
        return made(f"{name}: {text}", node, source=source, device=device["name"], observed=state, expected="ACTIVE",
                    cause="ib-link-or-hca-fault", remedy=remedy)  # fmt: skip

    if port["state"] in ("INIT", "ARMED") and port["link_layer"] == "InfiniBand":
        manager = "start a subnet manager (opensm, or the switch's own) on that fabric; check with sminfo"
        done = (
            "no subnet manager has configured it"
            if port["state"] == "INIT"
            else "its subnet manager has not activated it"
        )
        return bad(fail, f"the link is up, but {done} ({port['state']})", manager)
    if (device["name"], port["number"]) in active.names:
        return bad(fail, f"{state}; it is ACTIVE on other nodes")
    if nodes == 1 and up and up >= len(siblings) - 1 and not device["virtual"]:
        return bad(warn, f"{state}, while {counted(up, 'other port')} of that kind {'is' if up == 1 else 'are'} ACTIVE")
    if not active.names:
        return bad(warn, f"{state}, and no other port is ACTIVE: NCCL will use sockets")
    alone = "a virtual function that nobody uses" if device["virtual"] else "and so are others of its kind"
    where = "on every node" if nodes > 1 else alone
    return skip(f"{name}: {state} {where}: not in use", node, source=source, device=device["name"])


def _switch_on(device: Device, port: Port) -> str:
    if port["link_layer"] == "InfiniBand":
        return f"the port is switched off: ibportstate -C {device['name']} {port['lid'] or '<lid>'} {port['number']} enable"
    links = port["netdevs"][:2]
    return "the port is switched off: " + (
        " and ".join(f"ip link set {name} up" for name in links) or "ip link set its interface up"
    )


_REMEDIES = {
    "Polling": "no signal from the other end: check cable, optics and the switch port",
    "Sleep": "no signal from the other end: check cable, optics and the switch port",
    "LinkErrorRecovery": "the link keeps failing: replace cable or optics",
}


def _slow(located: Located, name: str, source: str, active: Active) -> Iterator[Finding]:
    """Against the same port of other nodes and the same kind of card on this one: the usual rate is the most frequent."""
    node, device, port = located
    if not port["rate_gbits_s"]:
        return
    usual = active.usual(device, port)
    if usual is None or port["rate_gbits_s"] >= usual:
        return
    lanes = f", {port['lanes']}X" if port["lanes"] in (1, 2) else ""
    yield warn(
        f"{name}: {port['rate_gbits_s']:g} Gb/s{lanes}, the others of its kind {usual:g} Gb/s",
        node,
        source=f"{source}/rate",
        device=device["name"],
        observed=port["rate_gbits_s"],
        unit="Gb/s",
        expected=usual,
        cause="ib-link-or-hca-fault",
        remedy="cable or optics of a lower class, a damaged lane, or a switch port set lower: compare with the peer port",
    )


def _together(node: str, ports: List[Located]) -> Iterator[Finding]:
    """What the active ports of one node are as a set."""
    up = [(device, port) for _, device, port in ports if port["state"] == "ACTIVE"]
    layers = sorted({port["link_layer"] for _, port in up if port["link_layer"]})
    if {"InfiniBand", "Ethernet"} <= set(layers):
        of = {layer: [device["name"] for device, port in up if port["link_layer"] == layer] for layer in layers}
        shown = "; ".join(f"{layer} {', '.join(names[:8])}" for layer, names in of.items())
        yield warn(
            f"InfiniBand and Ethernet ports together: {shown}; NCCL takes both unless NCCL_IB_HCA names one kind",
            node,
            source=f"{CLASS}/*/ports/*/link_layer",
            observed=of,
            cause="mixed-hca-fabrics",
            remedy="set NCCL_IB_HCA to the devices of the one fabric that joins the nodes",
        )
    other = sorted(
        {device["name"] for device, port in up if port["link_layer"] not in ("InfiniBand", "Ethernet", None)}
    )
    if other and not set(layers) & {"InfiniBand", "Ethernet"}:
        kinds = sorted({device["driver"] or "unknown driver" for device, _ in up})
        yield skip(
            f"{', '.join(other)} ({', '.join(kinds)}): no InfiniBand and no RoCE; NCCL reaches them only by a network plugin "
            "(EFA: aws-ofi-nccl)",
            node,
            source=f"{CLASS}/*/ports/*/link_layer",
        )


PROBE = Probe("rdma-port", "RDMA ports are up and equally fast", judge, needs=("rdma-devices", "pci-devices"))
