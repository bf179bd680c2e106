"""Addresses that failed against addresses that the nodes are known by: a known one that does not answer is filtered, a foreign one was announced wrongly.

Known are the addresses in rendez-vous URLs, of Ray's nodes and workers, and those NCCL says it uses. Without any, nothing is concluded.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line, speaker

_IP = r"(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})"
_KNOWN = re.compile(
    r"(?:distributed_init_method=tcp://|master_addr=|pid=\d+, ip=|Ray cluster at address:? |node ip(?: address)?[: ]+|Local node IP: |node_ip_address[=:\s'\"]+|driver_ip: |Bootstrap ?: Using (?:\[0\])?[\w.@-]+:|MASTER_ADDR=)"
    + _IP
)
_FAILED = re.compile(
    r"(?:[Cc]onnect(?:ing|ion)?(?: to)? \[?|remote=\[|trying to connect to \(|connect/validate to host |server socket on \[(?:::ffff:)?|Call to connect to )"
    + _IP
)
_UNANSWERED = re.compile(r"timed out|time out|timeout|Software caused connection abort|exceeded", re.I)
_REFUSED = re.compile(r"refused|No route to host", re.I)
_JOINED = re.compile(r"(\d+)/(\d+) clients joined")
_MANY_BRIDGES = re.compile(r"NET/Socket : Using .*\[\d+\](?:docker\d*|br-|veth|virbr|cni|flannel|lxcbr|tailscale|wg)")


class Addresses:
    """Known and failed addresses of one job."""

    triggers = (
        "distributed_init_method=tcp",
        "master_addr=",
        ", ip=",
        "Ray cluster at address",
        "ode IP: ",
        "node_ip_address",
        "driver_ip",
        "Using [0]",
        "Bootstrap : Using",
        "Bootstrap: Using",
        "MASTER_ADDR=",
        "imed out",
        "onnection abort",
        "onnection refused",
        "No route to host",
        "clients joined",
        "exceeded",
        "NET/Socket : Using",
        "Using the loopback address as fallback",
        "connectFullMesh failed",
    )

    def __init__(self) -> None:
        self._known: dict[str, Line] = {}
        self._failed: dict[str, tuple[Line, str]] = {}
        self._joined: Line | None = None
        self._bridges: Line | None = None
        self._fallback: Line | None = None
        self._mesh: Line | None = None

    def take(self, line: Line) -> bool:
        text = line.text
        for address in _KNOWN.findall(text):
            if len(self._known) < 10_000:
                self._known.setdefault(address, line)
        if _MANY_BRIDGES.search(text):
            self._bridges = self._bridges or line
        if "Using the loopback address as fallback" in text:
            self._fallback = self._fallback or line
        if "connectFullMesh failed" in text:
            self._mesh = self._mesh or line
        if _JOINED.search(text):
            self._joined = self._joined or line
        if _UNANSWERED.search(text) or _REFUSED.search(text):
            for address in _FAILED.findall(text)[:4]:
                if len(self._failed) < 1000:
                    self._failed.setdefault(address, (line, "refused" if _REFUSED.search(text) else "unanswered"))
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        known = dict.fromkeys(a for a in self._known if not a.startswith("127.") and a != "0.0.0.0")
        for address, (line, how) in self._failed.items():
            where = {**speaker(line.shown), "peer": address}
            evidence = [line.evidence()]
            if address in known and how == "unanswered":
                known_line = self._known[address]
                if known_line.number != line.number or known_line.source != line.source:
                    evidence.append(known_line.evidence())
                if self._joined is not None:
                    evidence.append(self._joined.evidence())
                yield Signal(
                    "bootstrap-blocked-firewall",
                    Says.STRONG,
                    f"{address} is the right address of a node, but connections to it get no answer",
                    evidence,
                    where,
                    order=line.order,
                )
            elif (
                known
                and address not in known
                and not any(_near(address, other) for other in known)
                and not address.startswith("127.")
            ):
                nearest = next(iter(known))
                yield Signal(
                    "socket-ifname-wrong",
                    Says.STRONG,
                    f"a rank is told to reach its peer at {address}; the nodes are known by other networks ({nearest})",
                    [*evidence, self._known[nearest].evidence()],
                    where,
                    order=line.order,
                )
        if self._fallback is not None and self._mesh is not None:
            yield Signal(
                "hostname-resolves-to-loopback",
                Says.STRONG,
                "gloo fell back to loopback because this node's name has no address of its own, and then its ranks could not connect",
                [self._fallback.evidence(), self._mesh.evidence()],
                speaker(self._fallback.shown),
                order=self._fallback.order,
            )
        if self._bridges is not None and self._failed:
            yield Signal(
                "socket-ifname-wrong",
                Says.STRONG,
                "NCCL spreads its sockets over bridges and tunnels of this host, too, which other hosts do not reach",
                [self._bridges.evidence()],
                speaker(self._bridges.shown),
                order=self._bridges.order,
            )


def _near(one: str, other: str) -> bool:
    """Whether both may be of one network: equal first 16 bits."""
    try:
        return ipaddress.ip_address(one).packed[:2] == ipaddress.ip_address(other).packed[:2]
    except ValueError:
        return True
