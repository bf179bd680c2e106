"""Everywhere the engine has processes: this machine, nodes over SSH, nodes of its Ray cluster. One agent a way, all asked at the same time."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import platform
import select
import shlex
import subprocess
import threading
import time
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from ncdiag import payload
from ncdiag.bringup.limit import ANSWER_S
from ncdiag.bringup.node import MARK, Node
from ncdiag.fleet import FleetError
from ncdiag.fleet.leash import Leash
from ncdiag.fleet.remote import INTERPRETERS, NO_PYTHON
from ncdiag.fleet.sessions import end_session
from ncdiag.fleet.ssh import SshFleet, options
from ncdiag.processes import stacks

LOADER = """
import os, sys
size = int(sys.stdin.buffer.readline())
data = sys.stdin.buffer.read(size)
fd = os.memfd_create("ncdiag", 0)
while data:
    data = data[os.write(fd, data):]
sys.path.insert(0, "/proc/%d/fd/%d" % (os.getpid(), fd))
from {module} import serve
serve()
"""
_PICK = """
for python in {interpreters}; do
    "$python" -S -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && exec "$python" -S -I -c {loader}
done
exit {no_python}
"""
Answer = dict[str, Any]


def packed(module: str) -> bytes:
    """A zip of `module` and all that it imports of ncdiag."""
    out = io.BytesIO()
    root = os.path.dirname(payload.ROOT)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(payload.modules([module]).values()):
            archive.write(path, os.path.relpath(path, root))
    return out.getvalue()


class Looker(Protocol):
    """Somebody who looks at one node or several."""

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[Answer]: ...
    def close(self) -> None: ...


class Local:
    """This machine, in this process."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = dict(request)
        self._node = Node()

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[Answer]:
        try:
            return [self._node.look({**extra, **self.request, "full": full})]
        except Exception as error:
            return [{"node": self._node.host.node, "error": f"{type(error).__name__}: {error}"}]

    def close(self) -> None:
        """Nothing to end."""


class Agent:
    """A process that answers looks over its standard input and output."""

    module = "ncdiag.bringup.serve"

    def __init__(
        self, name: str, argv: Sequence[str], request: Mapping[str, Any], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.request = dict(request)
        self.error = ""
        self._buffer = b""
        self._errors: list[bytes] = []
        self._leash = Leash(argv, environment)
        self._process = self._leash.process
        self._listener = threading.Thread(target=self._drain, daemon=True)
        self._listener.start()
        self._started = False

    def _drain(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]

    def _start(self, answer_s: float) -> bool:
        """Sends the program and waits until it is there."""
        content = packed(self.module)
        self._write(b"%d\n" % len(content) + content)
        hello = self._read(answer_s)
        if hello is None:
            return False
        self._started = True
        if (
            "py-spy" in hello.get("needs", ())
            and hello.get("machine") == platform.machine()
            and (program := stacks.py_spy())
        ):
            with open(program, "rb") as file:
                self._write(
                    json.dumps({"py_spy": base64.b64encode(zlib.compress(file.read(), 3)).decode()}).encode() + b"\n"
                )
        return True

    def _write(self, data: bytes) -> None:
        self._leash.send(data, ANSWER_S)

    def _read(self, answer_s: float) -> Answer | None:
        assert self._process.stdout
        deadline = time.monotonic() + answer_s
        descriptor = self._process.stdout.fileno()
        while True:
            line, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                if line.startswith(MARK.encode()):
                    answer: Answer = json.loads(line[len(MARK) :])
                    return answer
                continue
            if not select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0]:
                self.error = f"no answer within {answer_s:.2g} s"
                return None
            data = os.read(descriptor, 1 << 20)
            if not data:
                self.error = self._reason()
                return None
            self._buffer += data

    def _reason(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        time.sleep(0.1)
        if self._process.returncode == NO_PYTHON:
            return "no Python 3.8 or newer there"
        lines = b"".join(self._errors).decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else f"its agent ended with status {self._process.returncode}"

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[Answer]:
        if self._process.poll() is not None and not self.error:
            self.error = self._reason()
        answer_s = float(extra.get("answer_s", ANSWER_S))
        if self.error or not (self._started or self._start(answer_s)):
            return [{"node": self.name, "error": self.error}]
        self._write(json.dumps({**extra, **self.request, "full": full}).encode() + b"\n")
        answer = self._read(answer_s)
        return [{"node": self.name, "error": self.error}] if answer is None else answer.get("nodes") or [answer]

    def close(self) -> None:
        """Its standard input ends, so it ends; where it does not, it is ended."""
        self._leash.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(3)
        end_session(self._process.pid, self._process.poll)
        self._listener.join(2)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


class RayAgent(Agent):
    """The bridge in the engine's own interpreter, which has its Ray: one task a node."""

    module = "ncdiag.bringup.ray_bridge"


def ssh_agents(spec: str, request: Mapping[str, Any], *, user: str | None, config: str | None) -> list[Agent]:
    """One agent a node. Raises FleetError."""
    script = _PICK.format(
        interpreters=" ".join(INTERPRETERS), loader=shlex.quote(LOADER.format(module=Agent.module)), no_python=NO_PYTHON
    )
    chosen = [*options(config), *(["-l", user] if user else [])]
    return [
        Agent(node, ["ssh", *chosen, node, "sh -c " + shlex.quote(script)], request) for node in SshFleet(spec).nodes
    ]


def ray_agent(python: str, address: str, environment: Mapping[str, str]) -> Agent:
    """The bridge to the cluster at `address`, in the interpreter `python`."""
    return RayAgent(
        f"ray {address}",
        [python, "-c", LOADER.format(module=RayAgent.module)],
        {"ray": True, "address": address},
        environment,
    )


class Eyes:
    """All agents together."""

    def __init__(self, agents: Sequence[Looker]) -> None:
        self.agents: list[Looker] = list(agents)
        self.cost_s = 0.0
        """How long the last look took."""

    def look(self, full: bool, extra: Mapping[str, Any]) -> list[Answer]:
        """The answers of all nodes; one that gave nothing has `error`."""
        started = time.monotonic()
        with ThreadPoolExecutor(max(len(self.agents), 1)) as pool:
            answers = [
                answer for some in pool.map(lambda agent: agent.look(full, extra), self.agents) for answer in some
            ]
        self.cost_s = time.monotonic() - started
        return answers

    def close(self) -> None:
        for agent in self.agents:
            agent.close()


def open_nodes(spec: str, request: Mapping[str, Any], *, user: str | None, config: str | None) -> list[Agent]:
    """Agents for `--nodes`: none for `local`. Raises FleetError."""
    kind, _, rest = spec.partition(":")
    if kind == "local" and not rest:
        return []
    if kind == "ssh" and rest:
        return ssh_agents(rest, request, user=user, config=config)
    raise FleetError(
        f"--nodes {spec}: bringup watches local and ssh:NODESET; an engine in Ray is followed through its cluster by itself"
    )
