"""Between the nodes: bootstrap interfaces that others do not reach, sockets where RDMA was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Optional

from ncdiag.explain import Says, Signal
from ncdiag.logs.structure.look import Look
from ncdiag.nccl.log_facts import Process

_DECOY = re.compile(
    r"^(?:docker\d*|br-[0-9a-f]+|virbr\d+|veth|cni|flannel|cali|lxcbr|lxdbr|podman|kube-|tailscale|wg\d|tun\d)"
)


def interfaces(look: Look) -> Iterator[Signal]:
    """An interface that only exists inside a host, on a job of several hosts."""
    hosts = {process.host for process in look.facts.processes if process.host}
    inside = look.of_one_host()
    between = [process for index, process in enumerate(look.facts.processes) if index not in inside]
    for process in between:
        name = process.bootstrap_interface or ""
        if _DECOY.match(name) and (len(hosts) > 1 or look.several_nodes()):
            evidence, order = look.at(look.of(process, "bootstrap"))
            others = {
                p.bootstrap_interface
                for p in look.facts.processes
                if p.bootstrap_interface and p.bootstrap_interface != name
            }
            says = Says.STRONG if others or look.unfinished() else Says.HINT
            yield Signal(
                "socket-ifname-wrong",
                says,
                f"NCCL on {process.host} uses {name} ({process.bootstrap_address}), which other hosts do not reach",
                evidence,
                {"node": process.host, "interface": name},
                order=order,
            )
            return
    loopback = [process for process in between if (process.bootstrap_address or "").startswith("127.")]
    if loopback and (len(hosts) > 1 or look.several_nodes()):
        evidence, order = look.at(look.of(loopback[0], "bootstrap"))
        yield Signal(
            "socket-ifname-wrong",
            Says.STRONG,
            f"NCCL on {loopback[0].host} uses loopback for its bootstrap",
            evidence,
            {"node": loopback[0].host, "interface": loopback[0].bootstrap_interface},
            order=order,
        )


def networks(look: Look) -> Iterator[Signal]:
    """TCP sockets between nodes, and why."""
    sockets = [process for process in look.facts.processes if process.network == "Socket"]
    rdma = [process for process in look.facts.processes if process.network not in (None, "Socket")]
    uneven = _uneven(look, sockets, rdma)
    if uneven is not None:
        one, other = uneven
        evidence, order = look.at(look.of(one, "network"))
        more, _ = look.at(look.of(other, "network"))
        yield Signal(
            "hca-mismatch-between-nodes",
            Says.STRONG,
            f"{one.host} uses sockets, {other.host} uses {other.network}",
            [*evidence, *more],
            {"node": one.host},
            order=order,
        )
    between = any(
        transport.startswith("NET/Socket")
        for comm in look.facts.communicators
        for transport in (comm.transports if rdma else comm.between_nodes)
    ) or (sockets and (look._several or look.several_nodes()))
    if sockets and uneven is None and between:
        process = sockets[0]
        why, key = _why(look, process)
        evidence, order = look.at(look.of(process, key, "network"))
        more, _ = look.at(look.of(process, "network"))
        before, _ = look.at(look.of(rdma[0], "network")) if rdma else ([], 0.0)
        other_run = f"; another run here uses {rdma[0].network}" if rdma else ""
        yield Signal(
            "net-fallback-slow",
            Says.STRONG,
            "traffic between the nodes goes over TCP sockets" + (": " + why if why else "") + other_run,
            [*more, *[e for e in evidence if e not in more], *before],
            {"node": process.host},
            condition=True,
            order=order,
            remedy=f"compare the two runs (image, LD_LIBRARY_PATH, NCCL_NET, NCCL_IB_*, plug-in): what gives `Using network {rdma[0].network}` is missing in the slow one"
            if rdma
            else "",
        )

    yield from _wanted(look, sockets)


def _uneven(look: Look, sockets: list[Process], rdma: list[Process]) -> Optional[tuple[Process, Process]]:
    """Two processes of one communicator on different networks. Where none says who belongs together: of different hosts, none of which uses both, as those of two runs do."""
    slow, fast = {id(process) for process in sockets}, {id(process) for process in rdma}
    if not (slow and fast):
        return None
    for comm in look.facts.communicators:
        mine = [look.facts.processes[rank.process] for rank in comm.ranks]
        ones = [process for process in mine if id(process) in slow]
        others = [process for process in mine if id(process) in fast]
        if ones and others:
            return ones[0], others[0]
    hosts = {process.host for process in sockets}
    if not hosts.isdisjoint(process.host for process in rdma):
        return None
    placed = {rank.process for comm in look.facts.communicators for rank in comm.ranks}
    known = {id(look.facts.processes[index]) for index in placed}
    pairs = ((one, other) for one in sockets for other in rdma if not (id(one) in known and id(other) in known))
    return next(pairs, None)


def _wanted(look: Look, sockets: list[Process]) -> Iterator[Signal]:
    """Processes on sockets that were meant to find RDMA devices and found none."""
    library = any(
        event.kind == "library-missing" and "ibverbs" in str(event.fields.get("library", ""))
        for event in look.facts.events
    )
    without = [process for process in sockets if process.ib_no_device or library]
    if not without:
        return
    process = without[0]
    meant = (
        any(name in process.settings for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC"))
        or process.settings.get("NCCL_IB_DISABLE", "").startswith("0")
        or any(re.search(r"RDMA|IBext|SHARP", name) for name in process.net_plugins)
    )
    bare = not meant and library and look.several_nodes()
    evidence, order = look.at(look.of(process, "ib_no_device", "network"))
    where = {"node": process.host}
    yield Signal(
        "rdma-unavailable",
        Says.STRONG if meant or bare else Says.HINT,
        f"NCCL on {process.host} finds no RDMA device"
        + (", although it is set up for one" if meant else "; that matters only where there should be one"),
        evidence,
        where,
        condition=True,
        order=order,
        candidates=("net-fallback-slow",) if bare else (),
    )


def _why(look: Look, process: Process) -> tuple[str, str]:
    if process.settings.get("NCCL_IB_DISABLE", "0").strip(". ") not in ("", "0"):
        return "NCCL_IB_DISABLE is set", "NCCL_IB_DISABLE"
    if process.settings.get("NCCL_NET", "").lower().startswith("socket"):
        return "NCCL_NET=Socket is set", "NCCL_NET"
    if any(
        event.kind == "library-missing" and "ibverbs" in str(event.fields.get("library", ""))
        for event in look.facts.events
    ):
        return "libibverbs cannot be opened", "network"
    if process.ib_no_device and "NCCL_IB_HCA" in process.settings:
        return f"no device is left by NCCL_IB_HCA={process.settings['NCCL_IB_HCA']}", "NCCL_IB_HCA"
    return ("no usable RDMA device was found", "ib_no_device") if process.ib_no_device else ("", "network")
