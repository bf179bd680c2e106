"""One command on many nodes at a time: ClusterShell's workers, bounded in number, time and what they may print."""

from __future__ import annotations

import logging
import math
import os
import resource
import shlex
import time
from collections.abc import Callable
from typing import Any

from ncdiag.files import must_be_regular
from ncdiag.fleet import clock
from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.client import worker_class
from ncdiag.fleet.clock import Stamp
from ncdiag.fleet.remote import Answer
from ncdiag.fleet.sessions import Sessions, orderly

FANOUT = 64
"""Connections at a time, and more while some are silent; NCDIAG_FANOUT is a number that is never passed."""

MOST = 1024
"""Connections at a time, silent ones with them."""

SILENT_S = 1.0
"""A node that has said nothing for so long keeps no other waiting. A connection and the start of Python take less."""

LOOK_S = 0.25
"""How often it is looked who is silent, who has ended, and whether Ctrl-C was pressed."""

OVER_S = 5.0
"""What a wave may take longer than its nodes' limit: to start it and to end it."""

FILES_A_NODE = 6
"""Open files that one process of the fan-out costs us: three pipes, and their other ends while it starts."""

MAX_OUTPUT_BYTES = 16 << 20
"""What one node may print; then it is cut off."""


def fan_out(
    nodes: list[str],
    shell_command: str,
    stdin: bytes,
    timeout_s: float,
    progress: Progress,
    *,
    user: str | None = None,
    options: list[str] | None = None,
    together: bool = False,
) -> dict[str, Answer]:
    """Runs one command on all nodes, in their order. A node's time counts from its own connection.

    `options` are OpenSSH's; None: processes on this machine, in whose command `%h` is the node, and `%%` a percent sign.
    `together`: all at once instead of FANOUT at a time. Nothing that was started is left behind, whether it ends, fails or is interrupted.
    """
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.Task import TimeoutError as TimeIsUp
    from ClusterShell.Task import task_self

    if not (logger := logging.getLogger("ClusterShell")).handlers:
        logger.addHandler(logging.NullHandler())  # a broken pipe is told as the node's reason
    task, sessions = task_self(), Sessions()
    fanout, most = _limits(len(nodes), together)
    task.set_default("stderr", True)
    task.set_info("fanout", fanout)
    task.set_info("ssh_options", shlex.join(options or ()))
    task.set_info("ssh_user", user)
    if options is not None:
        _plant(task)
    watch = watcher(progress)
    with orderly() as heed:
        kind = "exec" if options is None else "ssh"
        task.set_default("distant_worker", worker_class(kind, sessions, heed))
        try:
            job = task.shell(
                shell_command, nodes=NodeSet.fromlist(nodes), handler=watch, timeout=timeout_s, stderr=True
            )
            job.write(stdin)
            job.set_write_eof()
            task.timer(LOOK_S, _looker(task, watch, sessions, heed, fanout, most), interval=LOOK_S, autoclose=True)
            task.resume(math.ceil(len(nodes) / fanout) * (timeout_s + OVER_S))
        except TimeIsUp:
            pass  # those without an answer have none
        finally:
            sessions.close()
    return {node: watch.answers.get(node) or watch.answer(node, None) for node in nodes}


def _plant(task: Any) -> None:
    """Takes the gateways of NCDIAG_TOPOLOGY, a topology file of ClusterShell; the gateways need ClusterShell. Raises FleetError."""
    from ClusterShell.Topology import TopologyError

    path = os.environ.get("NCDIAG_TOPOLOGY")
    if path is None:
        return
    try:
        must_be_regular(path)
        task.load_topology(path)
    except (TopologyError, OSError) as error:
        raise FleetError(f"NCDIAG_TOPOLOGY={path}: {getattr(error, 'strerror', None) or error}") from error


def _limits(nodes: int, together: bool) -> tuple[int, int]:
    """Processes at a time, and with silent ones. Each needs three pipes: the limit of open files is raised as far as it goes. Raises FleetError."""
    told = os.environ.get("NCDIAG_FANOUT", str(FANOUT))
    if not told.isascii() or not told.isdecimal() or not int(told):
        raise FleetError(f"NCDIAG_FANOUT={told}: a number from 1 on is wanted: how many connections at a time")
    wanted = nodes if together else int(told)
    most = max(wanted, min(nodes, MOST)) if "NCDIAG_FANOUT" not in os.environ else wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_A_NODE * most + 100
    if soft < needed:
        soft = min(hard, needed) if hard != resource.RLIM_INFINITY else needed
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    able = max(1, (soft - 100) // FILES_A_NODE)
    return min(wanted, able), min(most, able)


def _looker(task: Any, watch: Any, sessions: Sessions, heed: Callable[[], None], fanout: int, most: int) -> Any:
    """Looks from time to time: silent nodes keep no others waiting, what a dead ssh has left is ended."""
    from ClusterShell.Event import EventHandler

    class Looker(EventHandler):
        def ev_timer(self, timer: Any) -> None:
            heed()
            sessions.look()
            for client in task._engine.clients():
                if client.key in watch.flooding:
                    client.abort()
            wanted = min(most, fanout + watch.silent())
            if wanted > task.info("fanout"):
                task.set_info("fanout", wanted)
                task._engine.start_clients()  # else only the end of a node would start another

    return Looker()


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
            self.flooding: set[str] = set()
            """Nodes that have printed more than they may."""
            self._start = time.time()

        def silent(self) -> int:
            """How many of those that were called some time ago have neither said anything nor ended."""
            limit = time.time() - SILENT_S
            return sum(
                when < limit and node not in self._sizes and node not in self.answers
                for node, when in self._called.items()
            )

        def ev_pickup(self, worker: Any, node: str) -> None:
            self._called[node] = time.time()

        def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
            self._sizes[node] = self._sizes.get(node, 0) + len(msg) + 1
            if self._sizes[node] > MAX_OUTPUT_BYTES:
                self._cut_off(node)
                return
            self._parts.setdefault((node, sname), []).append(msg)
            if node not in self._clocks and msg.startswith(clock.MARK):
                stamp = clock.read(msg, self._called.get(node, self._start), time.time())
                if stamp is not None:
                    self._clocks[node] = stamp

        def _cut_off(self, node: str) -> None:
            if node not in self.flooding:
                self.flooding.add(node)
                self.answer(node, None)
                self.answers[node] = Answer(255, "", f"it printed more than {MAX_OUTPUT_BYTES >> 20} MiB")
                progress(node, "")

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
