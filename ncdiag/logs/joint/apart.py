"""Pods or containers of one machine that NCCL takes for several hosts.

Source: NCCL's host hash (hostname and boot id, with NCCL_HOSTID before it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.pasted.placed import Place
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Communicator, NcclFacts


def apart(signals: Sequence[Signal], places: Mapping[str, Place], facts: NcclFacts) -> Iterator[Signal]:
    """Those of one machine between which a communicator sends over the network. `places`: by host name.

    Changes signals: where it has no other ranks, nobody needs RDMA.
    """
    for comm in facts.communicators if places else ():
        hosts = {rank.node for rank in comm.ranks if rank.node in places and (rank.n_nodes or 0) > 1}
        for host in sorted(hosts, key=str):
            machine = places[host].machine if host else ""
            together = sorted(other for other in hosts if other and places[other].machine == machine)
            if len(together) < 2 or not _over_network(comm, together):
                continue
            if {rank.node for rank in comm.ranks} == set(together):
                _without_rdma(signals)
            yield _told(comm, [places[name] for name in together], together)
            return


def _told(comm: Communicator, places: Sequence[Place], names: Sequence[str]) -> Signal:
    what, lines = places[0].what, [place.line for place in places[:4]]
    at = next((rank.stage_at for rank in comm.ranks if rank.node == names[0] and rank.stage_at), None)
    where = f"node, {places[0].machine}," if places[0].named else "machine (one answer of docker),"
    return Signal(
        "container-isolation",
        Says.STRONG,
        f"{what} {', '.join(names[:4])} run on one {where} and NCCL counts them as {len(names)} hosts: between them it uses the network, not NVLink",
        [line.evidence() for line in lines]
        + ([Evidence(at.source, at.text.strip(), at.line)] if at is not None else []),
        {"node": places[0].machine} if places[0].named else {},
        condition=True,
        order=lines[0].order,
        remedy=f"one {what[:-1]} with all GPUs of the node that the job uses there; {what} that share no IPC, PID and host name cannot reach each other's GPU memory",
    )


def _without_rdma(signals: Sequence[Signal]) -> None:
    for signal in signals:
        if signal.cause in ("rdma-unavailable", "net-fallback-slow", "gdr-disabled"):
            signal.cause, signal.says = "", Says.CASCADE


def _over_network(comm: Communicator, hosts: list[str]) -> bool:
    """Whether ranks of one of these hosts send to ranks of another one over the network. Where no other hosts take part, so does a peer of which nothing is known."""
    ranks = [rank for rank in comm.ranks if rank.node in hosts]
    of = {rank.rank: rank.node for rank in comm.ranks}
    alone = all(rank.n_nodes == len(hosts) for rank in ranks)
    return any(
        link.transport.startswith("NET")
        and (of[link.peer] in hosts and of[link.peer] != rank.node if link.peer in of else alone)
        for rank in ranks
        for link in rank.links
    )
