"""Ranks and communicators: different versions, processes that are each alone, initialisations that stand, strangers, warnings that nobody knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.structure.look import EARLY, Look
from ncdiag.nccl.log_facts import Communicator, Process, Rank
from ncdiag.nodeset import ranks

_PARTS = (
    ("socket", ("bootstrap-peer-unreachable", "socket-ifname-wrong", "bootstrap-blocked-firewall")),
    ("bootstrap", ("bootstrap-peer-unreachable", "socket-ifname-wrong", "rank-missing")),
    ("net_ib", ("ib-path-unreachable", "ib-qp-setup-failed", "roce-gid-wrong")),
    ("ibv", ("ib-qp-setup-failed", "rdma-unavailable", "roce-gid-wrong")),
    ("p2p", ("p2p-broken", "container-isolation", "cumem-failure")),
    ("shm", ("shm-too-small", "container-isolation", "cumem-failure")),
    ("nvls", ("nvls-multicast-failure", "fabric-manager-not-running")),
    ("mnnvl", ("imex-unavailable",)),
    ("alloc", ("gpu-memory-exhausted", "cumem-failure")),
    ("graph/", ("topology-file-error", "gpu-hardware-fault")),
)
"""Part of NCCL's source that warns -> what that usually is. Source: the tree of NCCL 2.18 to 2.32."""
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-f]*:[0-9a-f:]+")


def versions(look: Look) -> Iterator[Signal]:
    """Ranks of one communicator with different NCCL versions of their own banner."""
    for comm in look.facts.communicators:
        found: dict[str, Process] = {}
        for rank in comm.ranks:
            process = look.facts.processes[rank.process]
            if process.version and process.version_own:
                found.setdefault(process.version, process)
        if len(found) > 1:
            lines = [look.at(look.of(process, "version")) for process in found.values()]
            yield Signal(
                "nccl-version-mismatch",
                Says.STRONG,
                "ranks of one communicator run NCCL " + " and ".join(sorted(found)),
                [item for evidence, _ in lines for item in evidence],
                order=min(o for _, o in lines),
            )
            return


def lonely(look: Look) -> Iterator[Signal]:
    """Several processes on one host or job, each rank 0 of 1."""
    several = {source for comm in look.facts.communicators if comm.nranks > 1 for source in _sources(look, comm)}
    ones = [comm for comm in look.facts.communicators if comm.nranks == 1 and comm.ranks]
    ones = [comm for comm in ones if several.isdisjoint(_sources(look, comm))]
    processes = {comm.ranks[0].process for comm in ones}
    if len(processes) > 1:
        lines = [look.at(comm.ranks[0].stage_at) for comm in ones[:4]]
        yield Signal(
            "rank-layout-wrong",
            Says.STRONG,
            f"{len(processes)} processes are each rank 0 of 1: the launcher did not make one job of them",
            [item for evidence, _ in lines for item in evidence],
            order=min(o for _, o in lines),
        )


def one_gpu(look: Look) -> Iterator[Signal]:
    """Two ranks of a communicator that does not come up name one GPU of one host."""
    for comm in look.facts.communicators:
        if all(rank.stage in ("complete", "destroyed") for rank in comm.ranks):
            continue
        seen: dict[tuple[object, ...], Rank] = {}
        for rank in comm.ranks:
            address = look.facts.processes[rank.process].bootstrap_address
            other = seen.setdefault((rank.node, address, rank.bus_id), rank)
            if not rank.node or rank.bus_id is None or other is rank or other.process == rank.process:
                continue
            lines = [look.at(one.stage_at) for one in (other, rank)]
            yield Signal(
                "duplicate-gpu",
                Says.STRONG,
                f"ranks {other.rank} and {rank.rank} of one communicator name the same GPU of {rank.node} ({rank.bus_id})",
                [item for evidence, _ in lines for item in evidence],
                {"node": rank.node, "rank": rank.rank},
                order=min(order for _, order in lines),
                remedy="give each rank its own device: torch.cuda.set_device(LOCAL_RANK), CUDA_VISIBLE_DEVICES",
            )
            return


def _sources(look: Look, comm: Communicator) -> set[str]:
    return {source for rank in comm.ranks for source in look.facts.processes[rank.process].sources}


def stuck(look: Look) -> Iterator[Signal]:
    """The log ends inside the initialisation."""
    for comm in look.facts.communicators:
        early = [rank for rank in comm.ranks if rank.stage not in ("complete", "destroyed")]
        if not early or comm.nranks == 1:
            continue
        stages = "; ".join(f"{stage}: rank {who}" for stage, who in comm.stages.items())
        evidence, order = look.at(early[0].stage_at)
        summary = f"a communicator of {comm.nranks} ranks is not initialised ({stages})"
        if comm.missing:
            summary += f"; no line of rank {ranks(comm.missing)} is here"
        yield Signal(
            "", Says.SYMPTOM, summary, evidence, {"stage": early[0].stage}, order=order, candidates=_fits(look, comm)
        )
        return


def stranger(look: Look) -> Iterator[Signal]:
    """Who closes a connection during the rendez-vous, while every rank is here, and none of them has that address."""
    known = {
        address
        for process in look.facts.processes
        for address in (
            process.bootstrap_address,
            process.oob_address,
            *(device.address for device in process.net_devices),
        )
        if address
    }
    for event in look.facts.events:
        peer = str(event.fields.get("peer") or event.fields.get("address") or "").partition("<")[0]
        if event.kind != "connection-closed" or not _ADDRESS.fullmatch(peer) or peer in known or not known:
            continue
        comms = [comm for comm in look.facts.communicators if any(r.process == event.process for r in comm.ranks)]
        if not comms or any(comm.missing or any(r.stage not in EARLY for r in comm.ranks) for comm in comms):
            continue
        evidence, order = look.at(event.at)
        summary = (
            f"{peer}, which is no address of any rank, connected to the rendez-vous of {event.host} and closed again"
        )
        remedy = "find out what connects there (port scan, monitoring, a job that was restarted) and keep it off; NCCL 2.27.3 and later goes on after such a visit"
        for cause in ("framework-version-bug", "bootstrap-peer-unreachable"):
            yield Signal(
                cause,
                Says.HINT,
                summary,
                evidence,
                {"node": event.host, "peer": peer},
                order=order - 1.5,
                remedy=remedy,
            )
        return


def _fits(look: Look, comm: Communicator) -> tuple[str, ...]:
    stages = {rank.stage for rank in comm.ranks}
    if "bootstrap" in stages:
        return ("rank-missing", "bootstrap-blocked-firewall", "socket-ifname-wrong")
    if "connect" in stages or "exchange" in stages:
        return ("ib-path-unreachable", "p2p-broken", "bootstrap-blocked-firewall")
    return ("rank-missing", "rank-stuck-outside-collective", "gpu-hardware-fault")


def failed(look: Look) -> Iterator[Signal]:
    """A warning of NCCL that no reader knows, followed by the way that its error took upwards."""
    for event in look.facts.events:
        if event.kind == "warning" and any(
            other.kind == "propagation" and other.process == event.process for other in look.facts.events
        ):
            evidence, order = look.at(event.at)
            names = next((names for part, names in _PARTS if part in (event.code or "")), _PARTS[0][1])
            yield Signal(
                "",
                Says.SYMPTOM,
                f"NCCL gives up: {event.message[:160]}",
                evidence,
                {"node": event.host},
                order=order,
                candidates=names,
            )
            return


def peer_access(look: Look) -> Iterator[Signal]:
    """All ranks are up and only peer memory joins them: if it hangs afterwards, that is the first suspect."""
    for comm in look.facts.communicators:
        if (
            comm.nranks < 2
            or comm.between_nodes
            or any(name.startswith("NET/") for name in comm.transports)
            or not comm.ranks
            or len({rank.process for rank in comm.ranks}) < 2
        ):
            continue
        transports = set(comm.transports)
        legacy = [name for name in transports if name.startswith("P2P/IPC")]
        if (
            legacy
            and all(rank.stage == "complete" for rank in comm.ranks)
            and not any(rank.nvls for rank in comm.ranks)
        ):
            link = next(
                (link for rank in comm.ranks for link in rank.links if link.transport.startswith("P2P/IPC")), None
            )
            evidence, order = look.at(link.at if link else comm.ranks[0].stage_at)
            yield Signal(
                "p2p-broken",
                Says.HINT,
                "initialised; the GPUs use peer access among each other. If the first collective hangs, peer access does not work here",
                evidence,
                condition=True,
                order=order,
            )
            return
