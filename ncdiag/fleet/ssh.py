"""Nodes over SSH: OpenSSH with the user's own configuration, fanned out by ClusterShell."""

from __future__ import annotations

import os
import resource
import shlex
import time
from typing import Any

from ncdiag.fleet import clock
from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.clock import Stamp
from ncdiag.fleet.names import expand
from ncdiag.fleet.remote import Answer, RemoteFleet, command

FANOUT = 64
"""Connections at a time; NCDIAG_FANOUT changes it."""

FILES_A_NODE = 6
"""Open files that one process of the fan-out costs us: three pipes, and their other ends while it starts."""

CONNECT_TIMEOUT_S = 10
MAX_OUTPUT_BYTES = 64 << 20
"""What one node may print; more is cut, and the node is then said to have answered garbage."""


class SshFleet(RemoteFleet):
    """`spec`: node sets (`gpu[01-16]`) and `@FILE`s with one host a line, joined as in `fleet.names`."""

    def __init__(self, spec: str, *, user: str | None = None, config: str | None = None) -> None:
        self.nodes = _nodes(spec)
        self._user = user
        self._config = config

    def run(self, packed: bytes, timeout_s: float, progress: Progress, *, together: bool = False) -> dict[str, Answer]:
        return fan_out(
            self.nodes, command(), packed, timeout_s, progress, user=self._user, config=self._config, together=together
        )


def _nodes(spec: str) -> list[str]:
    try:
        nodes = expand(spec)
    except FleetError as error:
        raise FleetError(f"--nodes ssh:{error}") from error
    if not nodes:
        raise FleetError(f"--nodes ssh:{spec}: names no node")
    return nodes


def fan_out(
    nodes: list[str],
    shell_command: str,
    stdin: bytes,
    timeout_s: float,
    progress: Progress,
    *,
    user: str | None = None,
    config: str | None = None,
    worker: str = "ssh",
    together: bool = False,
) -> dict[str, Answer]:
    """Runs one command on all nodes, in their order. A node's time counts from its own connection.

    `worker` is ClusterShell's: `ssh`, or `exec` for processes on this machine (there `%h` is the node, and `%%` a percent sign).
    `together`: all at once instead of FANOUT at a time.
    """
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.Task import task_self

    task = task_self()
    task.set_default("stderr", True)
    task.set_default("distant_workername", worker)
    task.set_info("fanout", _fanout(len(nodes), together))
    task.set_info("connect_timeout", CONNECT_TIMEOUT_S)
    options = f"-oBatchMode=yes -oConnectTimeout={CONNECT_TIMEOUT_S} -oServerAliveInterval=5 -oServerAliveCountMax=3"
    task.set_info("ssh_options", options + (f" -F{shlex.quote(config)}" if config else ""))
    task.set_info("ssh_user", user)
    if worker == "ssh":
        _plant(task)
    watch = watcher(progress)
    job = task.shell(shell_command, nodes=NodeSet.fromlist(nodes), handler=watch, timeout=timeout_s, stderr=True)
    job.write(stdin)
    job.set_write_eof()
    task.resume()
    return {node: watch.answers.get(node) or watch.answer(node, None) for node in nodes}


def _plant(task: Any) -> None:
    """Takes the gateways of NCDIAG_TOPOLOGY, a topology file of ClusterShell; the gateways need ClusterShell. Raises FleetError."""
    from ClusterShell.Topology import TopologyError

    path = os.environ.get("NCDIAG_TOPOLOGY")
    if path is None:
        return
    try:
        task.load_topology(path)
    except (TopologyError, OSError) as error:
        raise FleetError(f"NCDIAG_TOPOLOGY={path}: {error}") from error


def _fanout(nodes: int, together: bool) -> int:
    """Processes at a time; each needs three pipes, so the limit of open files is raised as far as it goes."""
    wanted = nodes if together else int(os.environ.get("NCDIAG_FANOUT", FANOUT))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_A_NODE * wanted + 100:
        soft = min(hard, FILES_A_NODE * wanted + 100) if hard != resource.RLIM_INFINITY else FILES_A_NODE * wanted + 100
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, (soft - 100) // FILES_A_NODE))


def watcher(progress: Progress) -> Any:
    """Gathers what each node prints, bounded; `answers` holds those that have ended."""
    from ClusterShell.Event import EventHandler

    class Watch(EventHandler):
        def __init__(self) -> None:
            self.answers: dict[str, Answer] = {}
            self._parts: dict[tuple[str, str], list[bytes]] = {}
            self._sizes: dict[str, int] = {}
            self._called: dict[str, float] = {}
            self._clocks: dict[str, Stamp] = {}
            self._start = time.time()

        def ev_pickup(self, worker: Any, node: str) -> None:
            self._called[node] = time.time()

        def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
            self._sizes[node] = self._sizes.get(node, 0) + len(msg) + 1
            if self._sizes[node] <= MAX_OUTPUT_BYTES:
                self._parts.setdefault((node, sname), []).append(msg)
            if node not in self._clocks and msg.startswith(clock.MARK):
                stamp = clock.read(msg, self._called.get(node, self._start), time.time())
                if stamp is not None:
                    self._clocks[node] = stamp

        def answer(self, node: str, rc: int | None) -> Answer:
            out, err = (
                b"\n".join(self._parts.pop((node, stream), ())).decode("utf-8", "replace")
                for stream in ("stdout", "stderr")
            )
            return Answer(rc, out, err, self._clocks.get(node))

        def ev_hup(self, worker: Any, node: str, rc: int) -> None:
            if node not in self.answers:
                self.answers[node] = self.answer(node, rc)
                progress(node, "")

    return Watch()
