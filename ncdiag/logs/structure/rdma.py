"""RDMA: without GPUDirect, with different devices on the nodes, or of two fabrics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.structure.look import Look
from ncdiag.nccl.log_facts import Communicator, Link, Process


def gdr(look: Look) -> Iterator[Signal]:
    """RDMA between nodes without GPUDirect."""
    for comm in look.facts.communicators:
        rdma = {
            name: count
            for name, count in comm.between_nodes.items()
            if name.startswith("NET/") and not name.startswith("NET/Socket")
        }
        if rdma and not any("GDRDMA" in name for name in rdma):
            link = next(
                (
                    link
                    for rank in comm.ranks
                    for link in rank.links
                    if link.transport in rdma or link.transport.startswith("NET/")
                ),
                None,
            )
            evidence, order = look.at(link.at if link else None)
            yield Signal(
                "gdr-disabled",
                Says.STRONG,
                "RDMA between the nodes runs without GPUDirect (no channel says GDRDMA)",
                evidence,
                condition=True,
                order=order,
            )
            return
        if not any(_without_gdr(name) for name in comm.transports):
            continue
        with_gdr = _hosts(look, comm, True)
        without = _hosts(look, comm, False) - with_gdr
        if without and with_gdr:
            host = sorted(without)[0]
            link = next(link for rank in comm.ranks if (rank.node or "") == host for link in rank.links if _rdma(link))
            evidence, order = look.at(link.at)
            yield Signal(
                "gdr-disabled",
                Says.STRONG,
                f"{', '.join(sorted(without)[:6])} uses RDMA without GPUDirect, the other nodes with it",
                evidence,
                {"node": host},
                condition=True,
                order=order,
            )
            return
    yield from _in_part(look)


def _in_part(look: Look) -> Iterator[Signal]:
    """The same of channels whose initialisation was not kept, as `grep Channel` leaves them. Whether others send with it shows only in the same direction:
    what is received may use GPUDirect where what is sent does not."""
    ranks = [rank for rank in look.facts.unplaced if rank.node and any(map(_rdma, rank.links))]
    used = {link.direction for rank in ranks for link in rank.links if link.gdr}
    with_gdr = {rank.node for rank in ranks for link in rank.links if link.gdr}
    bare = [
        (rank.node, link)
        for rank in ranks
        for link in rank.links
        if _rdma(link) and rank.node not in with_gdr and link.direction in (used or ("receive",))
    ]
    if not bare:
        return
    evidence, order = look.at(bare[0][1].at)
    hosts = sorted({node or "" for node, _ in bare})
    yield Signal(
        "gdr-disabled",
        Says.STRONG,
        f"{', '.join(hosts[:6])} uses RDMA without GPUDirect, the other nodes with it"
        if with_gdr
        else "RDMA between the nodes runs without GPUDirect (no channel says GDRDMA)",
        evidence,
        {"node": hosts[0]} if with_gdr else {},
        condition=True,
        order=order,
    )


def _hosts(look: Look, comm: Communicator, gdr: bool) -> set[str]:
    """Hosts with RDMA channels that use GPUDirect, or do not."""
    return {rank.node or "" for rank in comm.ranks for link in rank.links if _rdma(link) and link.gdr is gdr}


def devices(look: Look) -> Iterator[Signal]:
    """Different devices on the nodes, or devices of two fabrics in one process, in a job that is not healthy."""
    failed = any(event.kind in ("ib-completion-error", "ib-verbs-failed") for event in look.facts.events)
    troubled = (
        failed
        or any(event.kind == "propagation" for event in look.facts.events)
        or any(rank.stage not in ("complete", "destroyed") for comm in look.facts.communicators for rank in comm.ranks)
    )
    with_devices = [process for process in look.facts.processes if process.net_devices and process.net_devices[0].link]
    for process in with_devices:
        links = {device.link for device in process.net_devices if device.link}
        if len(links) > 1 and troubled:
            evidence, order = look.at(look.of(process, "net_devices"))
            yield Signal(
                "mixed-hca-fabrics",
                Says.STRONG if failed else Says.HINT,
                f"{process.host} uses InfiniBand and RoCE devices together",
                evidence,
                {"node": process.host},
                order=order + 0.5,
                remedy="name the devices of one fabric on all nodes: NCCL_IB_HCA==mlx5_0,mlx5_1…",
            )
            break
    counts: dict[int, Process] = {}
    for process in with_devices:
        counts.setdefault(len(process.net_devices), process)
    if len(counts) > 1:
        some = list(counts.values())[:2]
        lines = [look.at(look.of(process, "net_devices")) for process in some]
        fewer = min(some, key=lambda p: len(p.net_devices))
        absent = _absent(fewer) if not any(_absent(process) for process in some if process is not fewer) else []
        ignored = any("NCCL_IGNORE_NET_MISMATCH" in process.settings for process in with_devices)
        yield Signal(
            "hca-mismatch-between-nodes",
            Says.STRONG if absent or ignored or (not troubled and _together(look, some)) else Says.HINT,
            " and ".join(f"{process.host} uses {len(process.net_devices)} RDMA devices" for process in some)
            + (f": it has no {', '.join(absent)} of NCCL_IB_HCA" if absent else ""),
            [item for evidence, _ in lines for item in evidence],
            {"node": fewer.host},
            condition=not troubled,
            order=min(o for _, o in lines),
        )


_GID = re.compile(r" GID -?\d{1,5} \((?:0x)?(?P<prefix>[0-9A-Fa-f]{1,16})/")
_LINK_LOCAL = "80FE"
"""fe80:: as NCCL prints it, a number in the network's byte order. Source: NCCL 2.18 to 2.32, net_ib.cc, ncclIbConnect."""


def gids(look: Look) -> Iterator[Signal]:
    """Some nodes' queue pairs have a link-local GID, and others' have an address that is routed: the two do not reach each other."""
    kinds: dict[bool, Process] = {}
    for process in look.facts.processes:
        line = process.evidence.get("gid_index")
        gid = _GID.search(line.text) if line is not None else None
        if gid is not None:
            kinds.setdefault(gid["prefix"].upper() == _LINK_LOCAL, process)
    if len(kinds) < 2 or kinds[True].host == kinds[False].host:
        return
    lines = [look.at(kinds[local].evidence["gid_index"]) for local in (True, False)]
    yield Signal(
        "roce-gid-wrong",
        Says.STRONG,
        f"{kinds[True].host} uses a link-local GID, {kinds[False].host} one with an address: its interface has no address of the network that the others use",
        [item for evidence, _ in lines for item in evidence],
        {"node": kinds[True].host},
        order=min(order for _, order in lines),
        remedy="give the interface below that RoCE port its address (ip addr on both nodes; show_gids), then leave NCCL_IB_GID_INDEX unset",
    )


def _together(look: Look, some: list[Process]) -> bool:
    """Whether processes are of one communicator in which every host has as many ranks."""
    for comm in look.facts.communicators:
        mine = [look.facts.processes[rank.process] for rank in comm.ranks]
        hosts = [process.host for process in mine]
        if all(process in mine for process in some) and len({hosts.count(host) for host in hosts}) == 1:
            return True
    return False


def _absent(process: Process) -> list[str]:
    """Names that its NCCL_IB_HCA lists and that it does not use."""
    wanted = process.settings.get("NCCL_IB_HCA", "")
    names = [name.partition(":")[0] for name in wanted.lstrip("=").split(",")] if not wanted.startswith("^") else []
    have = [device.name for device in process.net_devices]
    return [name for name in names if name and not any(device.startswith(name) for device in have)]


def _without_gdr(transport: str) -> bool:
    """Whether a transport, as communicators count them, is RDMA without GPUDirect."""
    return transport.startswith("NET/") and not transport.startswith("NET/Socket") and "/GDRDMA" not in transport


def _rdma(link: Link) -> bool:
    return link.transport.startswith("NET/") and not link.transport.startswith("NET/Socket")
