"""Ways to an agent on a node: here, over SSH, in a Slurm step. Each is a process whose standard input is the agent's leash."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ncdiag import payload
from ncdiag.bandwidth.limit import Limit
from ncdiag.fleet import over_ssh
from ncdiag.fleet.base import FleetError
from ncdiag.fleet.leash import Leash
from ncdiag.fleet.remote import INTERPRETERS
from ncdiag.fleet.sessions import Sessions
from ncdiag.fleet.ssh import SshFleet, options

AGENT = "ncdiag.bandwidth.node.agent"
NO_TORCH = 97
"""Exit status of the remote command when no interpreter has torch."""
LOADER = """
import importlib.abc, importlib.util, json, os, sys
def take(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(0)
        data += part
    return data
sources = json.loads(take(int(take(10))).decode())
class Shipped(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name in sources:
            package = any(other.startswith(name + ".") for other in sources)
            return importlib.util.spec_from_loader(name, self, is_package=package)
    def exec_module(self, module):
        file = module.__name__.replace(".", "/") + ".py"
        exec(compile(sources[module.__name__], file, "exec"), module.__dict__)
sys.meta_path.insert(0, Shipped())  # before an ncdiag that is installed there
from ncdiag.bandwidth.node.agent import main
main()
"""
_HAS_TORCH = 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'
_PICK = """
for python in {interpreters}; do
    "$python" -c {check} 2>/dev/null && exec env {env} "$python" -u -c {loader}
done
echo "no Python with torch there (tried {interpreters}); --python names the engine's interpreter" >&2
exit {no_torch}
"""


def sources() -> bytes:
    """What the loader is given first: ten digits and the source of every module that the agent needs, by name."""
    text = {name: Path(path).read_text(encoding="utf-8") for name, path in payload.modules([AGENT]).items()}
    data = json.dumps(text).encode()
    return b"%010d" % len(data) + data


class Line(Protocol):
    """A way to one agent."""

    def fileno(self) -> int: ...
    def read(self) -> bytes:
        """What has come; empty when the agent is gone."""
        ...

    def send(self, data: bytes) -> None: ...
    def why(self) -> str:
        """Why it is gone."""
        ...

    def release(self) -> None:
        """Lets go of the leash: the agent ends by itself."""
        ...

    def ended(self) -> bool:
        """Whether nothing of it runs here any more."""
        ...

    def close(self, sessions: Sessions) -> None:
        """Frees what it holds here; `sessions` is told what may still run."""
        ...


class ProcessLine:
    """The agent is at the other end of a process's standard input and output."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._leash = Leash(argv, environment)
        self._process = self._leash.process
        assert self._process.stdout and self._process.stderr
        os.set_blocking(self._process.stderr.fileno(), False)
        self._error = b""
        self._deaf = False
        self.send(sources())

    def fileno(self) -> int:
        assert self._process.stdout
        return self._process.stdout.fileno()

    def read(self) -> bytes:
        self._drain()
        return os.read(self.fileno(), 1 << 18)

    def _drain(self) -> None:
        assert self._process.stderr
        while select.select([self._process.stderr], [], [], 0)[0]:
            part = os.read(self._process.stderr.fileno(), 1 << 16)
            if not part:
                return
            self._error = (self._error + part)[-4000:]

    def send(self, data: bytes) -> None:
        self._deaf = self._deaf or not self._leash.send(data)  # reading says why it is gone, or nothing comes

    def why(self) -> str:
        try:
            status: int | None = self._process.wait(3)
        except subprocess.TimeoutExpired:
            status = None
        self._drain()
        lines = [line.strip() for line in self._error.decode("utf-8", "replace").splitlines() if line.strip()]
        return (lines[-1][:300] if lines else "") or f"the agent ended with status {status}"

    def release(self) -> None:
        self._leash.let_go()

    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self, sessions: Sessions) -> None:
        """What is left here is the sessions' to end. The far side ends by itself."""
        self.release()
        sessions.began(self._process.pid, self._process.poll)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


@dataclass(frozen=True)
class Way:
    """How one agent is reached: `open` starts it. `node` is a name for people; several agents may stand on one node (Ray)."""

    node: str
    open: Callable[[], Line]


def local_python(given: str | None) -> str:
    """The interpreter with torch on this machine. Raises FleetError."""
    if given and shutil.which(given) is None:
        raise FleetError(f"--python {given}: no such program here")
    candidates = [given] if given else [sys.executable, *filter(None, (shutil.which(name) for name in INTERPRETERS))]
    for python in dict.fromkeys(candidates):
        if python == sys.executable and importlib.util.find_spec("torch"):
            return python
        try:
            if subprocess.run([python, "-c", _HAS_TORCH], capture_output=True, timeout=20, check=False).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            continue
    tried = given or "this one and those on PATH"
    raise FleetError(f"no Python with torch (tried {tried}); --python PATH names the engine's interpreter")


def local(python: str | None, environment: Mapping[str, str]) -> list[Way]:
    chosen = local_python(python)
    argv = [chosen, "-u", "-c", LOADER]
    return [Way(os.uname().nodename, lambda: ProcessLine(argv, {**os.environ, **environment}))]


def command(python: str | None, environment: Mapping[str, str]) -> str:
    """One shell command that becomes an agent."""
    own = (python,) if python else (sys.executable, *INTERPRETERS)
    script = _PICK.format(
        interpreters=" ".join(shlex.quote(name) for name in own),
        check=shlex.quote(_HAS_TORCH),
        env=" ".join(shlex.quote(f"{name}={value}") for name, value in sorted(environment.items())),
        loader=shlex.quote(LOADER),
        no_torch=NO_TORCH,
    )
    return "sh -c " + shlex.quote(script)


def ssh(
    spec: str, python: str | None, environment: Mapping[str, str], user: str | None, config: str | None
) -> list[Way]:
    """One connection a node: OpenSSH with the user's own configuration."""
    chosen = [*options(config), *(["-l", user] if user else [])]
    shell = command(python, environment)

    def way(node: str) -> Way:
        return Way(node, lambda: ProcessLine(["ssh", *chosen, node, shell]))

    return [way(node) for node in SshFleet(spec).nodes]


def srun(job: str, python: str | None, environment: Mapping[str, str]) -> list[Way]:
    """One job step a node; `job` as SlurmFleet takes it."""
    from ncdiag.fleet.slurm import SlurmFleet

    fleet = SlurmFleet(job)
    shell = command(python, environment)
    step = [
        "srun",
        "--quiet",
        "--overlap",
        f"--jobid={fleet.job}",
        "--nodes=1",
        "--ntasks=1",
        "--unbuffered",
        "--cpu-bind=none",
        "--mpi=none",
    ]

    def way(node: str) -> Way:
        return Way(node, lambda: ProcessLine([*step, f"--nodelist={node}", "--job-name=ncdiag", "sh", "-c", shell]))

    return [way(node) for node in fleet.nodes]


def ways(
    nodes: str, python: str | None, environment: Mapping[str, str], user: str | None, config: str | None, limit: Limit
) -> list[Way]:
    """The agents that `--nodes` means. Raises FleetError."""
    kind, _, rest = nodes.partition(":")
    if kind == "local" and not rest:
        return local(python, environment)
    if kind == "ssh" and rest:
        return ssh(rest, python, environment, user, config)
    if kind == "slurm":
        return srun(rest, python, environment)
    if kind == "ray":
        from ncdiag.bandwidth.actors import ray_ways

        return ray_ways(rest, python, environment, limit)
    raise FleetError(
        f"--nodes {nodes}: {over_ssh(nodes)}ncdiag bandwidth runs on local, ssh:NODESET, ssh:@HOSTFILE, slurm, slurm:JOBID, ray or ray:ADDRESS"
    )
