"""`kubectl get pods -o wide`: pods of one node that NCCL takes for several hosts, as it tells hosts by their names.

Source: kubectl's columns, Kubernetes 1.20 to 1.34; NCCL's host hash (hostname and boot id, with NCCL_HOSTID before it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import Communicator, NcclFacts

_HEAD = re.compile(r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\b.*?(?<!NOMINATED )\bNODE\b")
PODS_LIMIT = 10_000


class Placed:
    """Which node each pod runs on."""

    triggers = ("READY",)

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[str, Line]] = {}
        self._columns: tuple[int, int] | None = None
        """Where the name and the node begin."""

    def take(self, line: Line) -> bool:
        text = line.text
        head = _HEAD.match(text)
        if head:
            self._columns = (
                text.index("NAME ") if text.startswith("NAME ") else text.index(" NAME ") + 1,
                head.end() - 4,
            )
            return True
        if self._columns is None or " Running " not in text:
            self._columns = None
            return False
        name, node = (text[at:].split(maxsplit=1)[:1] for at in self._columns)
        before = text[self._columns[1] - 1 : self._columns[1]]
        if name and node and before == " " and len(self._nodes) < PODS_LIMIT:
            self._nodes[name[0]] = node[0], line
        return True

    def end(self, source: str) -> None:
        self._columns = None

    def signals(self) -> Iterator[Signal]:
        yield from ()

    def apart(self, facts: NcclFacts) -> Iterator[Signal]:
        """Pods of one node between which a communicator sends over the network."""
        for comm in facts.communicators if self._nodes else ():
            hosts = {rank.node for rank in comm.ranks if rank.node in self._nodes and (rank.n_nodes or 0) > 1}
            for host in sorted(hosts, key=str):
                node = self._nodes[host][0] if host else ""
                together = sorted(other for other in hosts if other and self._nodes[other][0] == node)
                if len(together) < 2 or not _over_network(comm, together):
                    continue
                pods = [self._nodes[name][1] for name in together[:4]]
                at = next((rank.stage_at for rank in comm.ranks if rank.node == host and rank.stage_at), None)
                yield Signal(
                    "container-isolation",
                    Says.STRONG,
                    f"pods {', '.join(together[:4])} run on one node, {node}, and NCCL counts them as {len(together)} hosts: between them it uses the network, not NVLink",
                    [line.evidence() for line in pods]
                    + ([Evidence(at.source, at.text.strip(), at.line)] if at is not None else []),
                    {"node": node},
                    condition=True,
                    order=pods[0].order,
                    remedy="one pod with all GPUs of the node that the job uses there; pods that share no IPC, PID and host name cannot reach each other's GPU memory",
                )
                return


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
