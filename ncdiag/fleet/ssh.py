"""Nodes over SSH: OpenSSH with the user's own configuration, fanned out by ClusterShell."""

from __future__ import annotations

from collections.abc import Set

from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.names import expand
from ncdiag.fleet.remote import Answer, RemoteFleet, command

CONNECT_TIMEOUT_S = 10


class SshFleet(RemoteFleet):
    """`spec`: node sets (`gpu[01-16]`) and `@FILE`s with one host a line, joined as in `fleet.names`."""

    def __init__(self, spec: str, *, user: str | None = None, config: str | None = None) -> None:
        self.nodes = _nodes(spec)
        self._user = user
        self._config = config

    def names(self) -> list[str]:
        return self.nodes

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        chosen = [name for name in self.nodes if only is None or name in only]
        return fan_out(
            chosen, command(), packed, timeout_s, progress, options=options(self._config), user=self._user,
            together=together,
        )  # fmt: skip


def options(config: str | None) -> list[str]:
    """OpenSSH's options for a connection that nobody looks at."""
    found = [
        "-oBatchMode=yes",
        f"-oConnectTimeout={CONNECT_TIMEOUT_S}",
        "-oServerAliveInterval=5",
        "-oServerAliveCountMax=3",
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
