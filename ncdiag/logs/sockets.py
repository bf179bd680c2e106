"""Pasted `ss -tanp` (or netstat) tables: a SYN_SENT names the unreachable peer, a LISTEN at loopback the address nobody can reach.

Several tables may follow each other, one a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_ROW = re.compile(
    r"^\s*(?:tcp6?\s+)?(?P<state>LISTEN|SYN-SENT|SYN_SENT|ESTAB\w*|CLOSE-WAIT|CLOSE_WAIT|SYN-RECV|FIN-WAIT-\d|TIME-WAIT|LAST-ACK|CLOSING)\s+(?P<recv>\d+)\s+(?P<send>\d+)\s+"
    r"(?P<local>\S+?):(?P<lport>\d+|\*)\s+(?P<peer>\S+?):(?P<pport>\d+|\*)(?:\s+(?P<process>users:\S.*?))?\s*$"
)
_NETSTAT = re.compile(
    r"^\s*tcp6?\s+(?P<recv>\d+)\s+(?P<send>\d+)\s+(?P<local>\S+):(?P<lport>\d+|\*)\s+(?P<peer>\S+):(?P<pport>\d+|\*)\s+(?P<state>[A-Z_]+\d?)(?:\s+(?P<process>\S.*?))?\s*$"
)
_ENGINE = re.compile(r"VLLM|python|ray|sglang|pt_main|torch|nccl", re.I)
LOOPBACK = re.compile(r"^(?:127\.|::1$)")
DECOY = re.compile(r"^(?:172\.1[78]\.0\.1$|192\.168\.122\.1$|169\.254\.)")


@dataclass(frozen=True)
class Row:
    state: str
    local: str
    local_port: str
    peer: str
    peer_port: str
    process: str
    line: Line
    table: int


def _address(text: str) -> str:
    text = text.strip("[]").partition("%")[0]
    return text[7:] if text.lower().startswith("::ffff:") else text


class Sockets:
    """All socket tables."""

    triggers = (
        "State    Recv-Q",
        "State  Recv-Q",
        "State Recv-Q",
        "State      Recv-Q",
        "State     Recv-Q",
        "State   Recv-Q",
        "Recv-Q Send-Q",
        "SYN-SENT",
        "SYN_SENT",
        "LISTEN  ",
        "LISTEN 0 ",
    )

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._table = 0
        self._source = ""

    def take(self, line: Line) -> bool:
        text = line.text
        if "Recv-Q" in text and "Send-Q" in text:
            self._table += 1
            return True
        match = _ROW.match(text) or _NETSTAT.match(text)
        if match is None:
            return False
        if len(self.rows) < 50_000:
            state = match["state"].replace("_", "-").replace("ESTABLISHED", "ESTAB")
            self.rows.append(
                Row(
                    state,
                    _address(match["local"]),
                    match["lport"],
                    _address(match["peer"]),
                    match["pport"],
                    match["process"] or "",
                    line,
                    self._table,
                )
            )
        return True

    def end(self, source: str) -> None:
        self._table += 1

    def holder(self, port: str) -> Row | None:
        """The listener at a port, where it is a process of an engine or launcher."""
        return next(
            (
                row
                for row in self.rows
                if row.state == "LISTEN" and row.local_port == port and _ENGINE.search(row.process)
            ),
            None,
        )

    def signals(self) -> Iterator[Signal]:
        tables = {row.table for row in self.rows}
        own: dict[str, set[int]] = {}
        for row in self.rows:
            if row.local not in ("0.0.0.0", "*", "::") and (row.state == "ESTAB" or row.state == "LISTEN"):
                own.setdefault(row.local, set()).add(row.table)
            if row.state == "ESTAB":
                own.setdefault(row.peer, set())
        for row in self.rows:
            if row.state == "SYN-SENT" and not LOOPBACK.match(row.peer):
                yield self._unanswered(row, own)
        yield from self._unreachable_listeners(tables)

    def _unanswered(self, row: Row, own: dict[str, set[int]]) -> Signal:
        where = {"peer": f"{row.peer}:{row.peer_port}"}
        evidence = [row.line.evidence()]
        listeners = [
            other
            for other in self.rows
            if other.state == "LISTEN"
            and other.local_port == row.peer_port
            and other.table != row.table
            and other.local in (row.peer, "0.0.0.0", "*", "::")
        ]
        evidence += [other.line.evidence() for other in listeners[:2]]
        exact = [other for other in listeners if other.local == row.peer]
        others = [other for other in self.rows if other.local != other.peer]  # none of a process with its own node
        talks = any(other.state == "ESTAB" and other.peer == row.peer for other in others) or any(
            other.state == "ESTAB" and other.local == row.peer and not LOOPBACK.match(other.peer) for other in others
        )
        alone = exact and not talks and not any(other.local == row.peer and other.state != "LISTEN" for other in others)
        if DECOY.match(row.peer) or alone:
            return Signal(
                "socket-ifname-wrong",
                Says.STRONG,
                f"a connection to {row.peer}:{row.peer_port} is not answered: the peer listens there, at an address that this node does not reach",
                evidence,
                where,
                order=row.line.order,
                remedy="set GLOO_SOCKET_IFNAME / NCCL_SOCKET_IFNAME on the peer to the interface of the shared network",
            )
        if (listeners and (talks or row.peer in own)) or talks:
            return Signal(
                "bootstrap-blocked-firewall",
                Says.STRONG,
                f"packets to {row.peer}:{row.peer_port} get no answer, although the node {'listens there' if listeners else 'is reached on other ports'}",
                evidence,
                where,
                order=row.line.order,
            )
        if row.peer not in own and own:
            return Signal(
                "node-ip-wrong-interface",
                Says.STRONG,
                f"a process dials {row.peer}:{row.peer_port}, an address that no node here has",
                evidence,
                where,
                order=row.line.order,
                remedy="--master-addr, VLLM_HOST_IP and NCCL_SOCKET_IFNAME must lead to an address that the peer has and this node reaches",
            )
        return Signal(
            "",
            Says.SYMPTOM,
            f"a connection to {row.peer}:{row.peer_port} is not answered",
            evidence,
            where,
            order=row.line.order,
            candidates=("bootstrap-blocked-firewall", "bootstrap-peer-unreachable", "socket-ifname-wrong"),
        )

    def _unreachable_listeners(self, tables: set[int]) -> Iterator[Signal]:
        """Message queues of the engine that listen at loopback although there are several nodes."""
        if len(tables) < 2:
            return
        remote = any(
            row.state == "ESTAB" and not LOOPBACK.match(row.peer) and row.peer != row.local for row in self.rows
        )
        lines = [
            row.line
            for row in self.rows
            if row.state == "LISTEN" and LOOPBACK.match(row.local) and re.search(r"VLLM::|EngineCor", row.process)
        ]
        if lines and remote:
            yield Signal(
                "node-ip-wrong-interface",
                Says.STRONG,
                "the engine's message queue listens at loopback only; the other node cannot reach it",
                [line.evidence() for line in lines[:4]],
                order=lines[0].order,
                remedy="set VLLM_HOST_IP on that node to its address on the shared network",
            )
