"""Nodes over SSH: OpenSSH with the user's own configuration, fanned out by ClusterShell."""

from __future__ import annotations

import os
import shlex
from typing import Any

from ncdiag.fleet.base import Fleet, FleetError, Progress, Request
from ncdiag.fleet.remote import command, outcome, pack
from ncdiag.model import NodeFacts

FANOUT = 64
"""Connections at a time; NCDIAG_FANOUT changes it."""

CONNECT_TIMEOUT_S = 10
MAX_OUTPUT_BYTES = 64 << 20
"""What one node may print; more is cut, and the node is then said to have answered garbage."""


class SshFleet(Fleet):
    """`spec` is a node set (`gpu[01-16]`), a comma list, or `@FILE` with one host a line (a hostfile's slots are ignored)."""

    def __init__(self, spec: str, *, user: str | None = None, config: str | None = None) -> None:
        self.nodes = _nodes(spec)
        self._user = user
        self._config = config

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        answers = fan_out(
            self.nodes, command(), pack(request), request.node_timeout_s, progress, user=self._user, config=self._config
        )
        return [outcome(node, *answers[node], request.node_timeout_s) for node in self.nodes]


def _nodes(spec: str) -> list[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        if spec.startswith("@"):
            with open(spec[1:], encoding="utf-8") as file:
                names = [line.split("#")[0].split() for line in file]
            spec = ",".join(words[0] for words in names if words)
        nodes = list(NodeSet(spec))
    except OSError as error:
        raise FleetError(f"--nodes ssh:{spec}: {error.strerror}") from error
    except NodeSetException as error:
        raise FleetError(f"--nodes ssh:{spec}: {error}") from error
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
) -> dict[str, tuple[int | None, str, str]]:
    """Runs one command on all nodes; node -> `(exit status or None when its time was up, stdout, stderr)`.

    `worker` is ClusterShell's: `ssh`, or `exec` for processes on this machine (there `%h` is the node, and `%%` a percent sign).
    A node's time counts from its own connection.
    """
    from ClusterShell.Event import EventHandler
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.Task import task_self

    answers: dict[str, tuple[int | None, str, str]] = {}

    class Watch(EventHandler):
        """Gathers what each node prints, bounded."""

        def __init__(self) -> None:
            self.parts: dict[tuple[str, str], list[bytes]] = {}
            self.sizes: dict[str, int] = {}

        def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
            self.sizes[node] = self.sizes.get(node, 0) + len(msg) + 1
            if self.sizes[node] <= MAX_OUTPUT_BYTES:
                self.parts.setdefault((node, sname), []).append(msg)

        def text(self, node: str, stream: str) -> str:
            return b"\n".join(self.parts.get((node, stream), ())).decode("utf-8", "replace")

        def finish(self, node: str, rc: int | None) -> None:
            answers.setdefault(node, (rc, self.text(node, "stdout"), self.text(node, "stderr")))
            progress(node, "")

        def ev_hup(self, worker: Any, node: str, rc: int) -> None:
            self.finish(node, rc)

        def ev_close(self, worker: Any, timedout: bool) -> None:
            for node in worker.iter_keys_timeout() if hasattr(worker, "iter_keys_timeout") else ():
                self.finish(node, None)

    task = task_self()
    task.set_default("stderr", True)
    task.set_default("distant_workername", worker)
    task.set_info("fanout", int(os.environ.get("NCDIAG_FANOUT", FANOUT)))
    task.set_info("connect_timeout", CONNECT_TIMEOUT_S)
    options = f"-oBatchMode=yes -oConnectTimeout={CONNECT_TIMEOUT_S} -oServerAliveInterval=5 -oServerAliveCountMax=3"
    task.set_info("ssh_options", options + (f" -F{shlex.quote(config)}" if config else ""))
    if user:
        task.set_info("ssh_user", user)
    watch = Watch()
    job = task.shell(shell_command, nodes=NodeSet.fromlist(nodes), handler=watch, timeout=timeout_s, stderr=True)
    job.write(stdin)
    job.set_write_eof()
    task.resume()
    for node in nodes:
        if node not in answers:
            watch.finish(node, None)
    return answers
