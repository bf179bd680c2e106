"""Nodes over SSH: OpenSSH with the user's own configuration, fanned out by ClusterShell."""

from __future__ import annotations

import shutil
from collections.abc import Set

from ncdiag.fleet.base import FleetError, Progress, Request
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.names import expand
from ncdiag.fleet.remote import Answer, RemoteFleet, command
from ncdiag.model import NodeFacts

CONNECT_TIMEOUT_S = 10


class SshFleet(RemoteFleet):
    """`spec`: node sets (`gpu[01-16]`) and `@FILE`s with one host a line, joined as in `fleet.names`."""

    def __init__(self, spec: str, *, user: str | None = None, config: str | None = None) -> None:
        self.nodes = _nodes(spec)
        self._user = user
        self._config = config

    def names(self) -> list[str]:
        return self.nodes

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        nodes, self.notes = each_once(super().collect(request, progress))
        return nodes

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        if shutil.which("ssh") is None:
            raise FleetError("--nodes ssh: ssh is not installed here")
        chosen = [name for name in self.nodes if only is None or name in only]
        return fan_out(
            chosen, command(), packed, timeout_s, progress, options=options(self._config), user=self._user,
            together=together,
        )  # fmt: skip


def each_once(nodes: list[NodeFacts]) -> tuple[list[NodeFacts], list[str]]:
    """A machine that was named twice (by name and by address) is there once: it must not be compared with itself. And who was left out."""
    named: dict[object, NodeFacts] = {}
    for node in sorted(nodes, key=lambda node: node.node != node.meta.get("hostname")):
        named.setdefault(_machine(node), node)
    kept = {node.node: named[_machine(node)].node for node in nodes}
    notes = [f"{name} is {one} once more, and left out" for name, one in kept.items() if name != one]
    return [node for node in nodes if kept[node.node] == node.node], notes


def _machine(node: NodeFacts) -> object:
    """The same for one machine: its host name and the hardware addresses of its links. The name it was called by where these are not known."""
    interfaces = node.facts.get("interfaces")
    links = interfaces.get("links") if isinstance(interfaces, dict) else None
    addresses = sorted({str(link.get("mac")) for link in links or () if str(link.get("mac") or "0").strip("0")})
    return (node.meta.get("hostname"), *addresses) if addresses else node.node


def options(config: str | None) -> list[str]:
    """OpenSSH's options for a connection that nobody looks at."""
    found = [
        "-oBatchMode=yes",
        f"-oConnectTimeout={CONNECT_TIMEOUT_S}",
        "-oServerAliveInterval=5",
        "-oServerAliveCountMax=3",
        "-oRequestTTY=no",  # what goes in and comes out is not for a terminal
        "-oRemoteCommand=none",
        "-oClearAllForwardings=yes",  # many connections would want the same ports here
    ]
    return found + (["-F", config] if config else [])


def _nodes(spec: str) -> list[str]:
    try:
        nodes = expand(spec)
    except FleetError as error:
        raise FleetError(f"--nodes ssh:{error}") from error
    if not nodes:
        raise FleetError(f"--nodes ssh:{spec}: names no node")
    return nodes
