"""The engine on two hosts of a lab, as a fault has left it: its environment, its command, and what happens to it while it runs."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import engines, rays
from .hosts import Lab, lab
from .sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
"""What makes this ncdiag importable on the hosts; the engines do not see it."""
JOB = Path(__file__).with_name("job.py")
PLATFORM = Path(__file__).with_name("rayplat")
PORT = 29501
SERVE = 8000
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",
    "PYTHONUNBUFFERED": "1",
    **rays.ENVIRONMENT,
}
"""vLLM's CPU build on a small machine without a network."""
SMALL = (
    "--served-model-name",
    "tiny",
    "--dtype",
    "bfloat16",
    "--enforce-eager",
    "--max-model-len",
    "128",
    "--max-num-seqs",
    "4",
    "--kv-cache-memory-bytes",
    str(64 << 20),
)


class NotSet(RuntimeError):
    """A fault could not be set on this machine, so nothing can be said about its answer."""


@dataclass
class Bench:
    """One start on the hosts `a` and `b`. Faults change its fields before `run`, or act from a thread while it runs."""

    hosts: Lab
    ssh: Ssh
    shape: str
    """`gloo`, `tp2` (one host), `nodes` (vLLM's own two-node mode), `ray`."""
    model: Path | None = None
    env: dict[str, dict[str, str | None]] = field(default_factory=lambda: {"a": {}, "b": {}})
    args: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})
    models: dict[str, str] = field(default_factory=dict)
    skip: set[str] = field(default_factory=set)
    """Hosts on which nothing is started."""
    port: dict[str, int] = field(default_factory=lambda: {"a": PORT, "b": PORT})
    master: dict[str, str] = field(default_factory=dict)
    parallel: dict[str, str] = field(default_factory=dict)
    """Host -> the flag that gets 2, tensor-parallel-size where not said."""
    node_rank: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 1})
    eager: bool = True
    """False: vLLM compiles the model."""
    preflight: bool = False
    """Whether ncdiag looks at the nodes before the start."""
    options: list[str] = field(default_factory=list)
    """More options of `ncdiag bringup`."""
    stall_after_s: float = 6.0
    timeout_s: float = 240.0
    acts: list[Callable[[Bench], None]] = field(default_factory=list)
    """Run in threads of their own from the start on."""
    before: list[Callable[[Bench], None]] = field(default_factory=list)
    """Run when the hosts, and Ray, are up, before the engine."""
    acted_at: float | None = None
    over: bool = False
    failures: list[str] = field(default_factory=list)
    """What went wrong in `acts`: the fault was not set."""

    def temporary(self, host: str) -> Path:
        """Where the engine's temporary files and sockets lie; what a killed one leaves there ends with the lab. (Ray has a /tmp/ray of its own.)"""
        return self.hosts.folder / f"{host}.tmp"

    def log(self, host: str) -> Path:
        return self.hosts.folder / f"{host}.out"

    def text(self, host: str) -> str:
        try:
            return self.log(host).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def environment(self, host: str) -> dict[str, str]:
        base: dict[str, str | None] = {**QUIET, "PATH": f"{Path(engines.python()).parent}:{os.environ['PATH']}"}
        base |= {"TMPDIR": str(self.temporary(host)), "RAY_TMPDIR": "/tmp"}
        if self.shape == "gloo":
            base |= {
                "MASTER_ADDR": self.master.get(host, self.hosts["a"].address),
                "MASTER_PORT": str(self.port[host]),
                "RANK": str(self.node_rank[host]),
                "WORLD_SIZE": "2",
                "GLOO_SOCKET_IFNAME": "eth0",
            }
        else:
            base |= {"VLLM_HOST_IP": self.hosts[host].address, "GLOO_SOCKET_IFNAME": "eth0"}
        if self.shape == "ray":
            base |= {"PYTHONPATH": str(PLATFORM), "RAY_ADDRESS": f"{self.hosts['a'].address}:{rays.PORT}"}
        return {name: value for name, value in {**base, **self.env[host]}.items() if value is not None}

    def command(self, host: str) -> list[str]:
        if self.shape == "gloo":
            return [engines.python(), str(JOB)]
        assert self.model is not None
        line = [
            str(Path(engines.python()).parent / "vllm"),
            "serve",
            self.models.get(host, str(self.model)),
            *(word for word in SMALL if self.eager or word != "--enforce-eager"),
            f"--{self.parallel.get(host, 'tensor-parallel-size')}",
            "2",
        ]
        if self.shape == "nodes":
            line += [
                "--distributed-executor-backend",
                "mp",
                "--nnodes",
                "2",
                "--node-rank",
                str(self.node_rank[host]),
                "--master-addr",
                self.master.get(host, self.hosts["a"].address),
                "--master-port",
                str(self.port[host]),
            ]
        else:
            line += ["--distributed-executor-backend", "ray" if self.shape == "ray" else "mp"]
        line += ["--headless"] if host == "b" else ["--host", "0.0.0.0", "--port", str(SERVE)]
        return line + self.args[host]

    def prepare(self) -> None:
        """Breaks what is broken before the start. Raises NotSet."""
        for act in self.before:
            try:
                act(self)
            except RuntimeError as error:
                raise NotSet(str(error)) from error

    def start(self, host: str) -> subprocess.Popen[bytes]:
        """The engine's command of `host`, as the fault has left it, without ncdiag."""
        environment = {**_none_of(os.environ), **self.environment(host)}
        return self.hosts[host].start(*self.command(host), log=self.log(host), env=environment)

    def act(self) -> None:
        """Lets everything begin that acts while the engine runs."""
        for act in self.acts:
            threading.Thread(target=self._act, args=(act,), daemon=True).start()

    def _act(self, act: Callable[[Bench], None]) -> None:
        try:
            act(self)
        except Exception as error:  # of a thread: told to whoever waits for the answer
            if not self.over:
                self.failures.append(f"{type(error).__name__}: {error}")


def _none_of(environment: Any) -> dict[str, str]:
    """The surrounding environment without what would place a rank."""
    return {
        name: value for name, value in environment.items() if not re.match(r"RANK$|WORLD_SIZE|MASTER_|LOCAL_", name)
    }


@contextmanager
def bench(
    shape: str, model: Path | None = None, names: Sequence[str] = ("a", "b"), sshd: Sequence[str] | None = None
) -> Iterator[Bench]:
    """Hosts with sshd on those of `sshd`; where not said, on the second one, where the shape spans two without Ray."""
    with lab(*names) as hosts:
        ssh = Ssh(hosts)
        for name in sshd if sshd is not None else ("b",) if shape in ("gloo", "nodes") else ():
            ssh.serve(hosts[name])
        made = Bench(hosts, ssh, shape, model)
        for number, name in enumerate(names):
            made.env.setdefault(name, {})
            made.args.setdefault(name, [])
            made.port.setdefault(name, PORT)
            made.node_rank.setdefault(name, number)
            made.temporary(name).mkdir()
        yield made
