"""A broken job on living hosts: started without ncdiag, looked at by a person, judged by ncdiag where it stands."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ncdiag.report.wrapped import UNBOUNDED, columns

from . import shell
from .attempt import broken
from .bench import ROOT, Bench, NotSet
from .faults import Fault

QUIET_S = {"gloo": 8.0}
"""Seconds without a new line after which a job is called broken; `_QUIET_S` for vLLM."""
_QUIET_S = 20.0
SETTLE_S = 150.0
LOOK_S = 90.0


@dataclass
class Scene:
    """The hosts, and the engine's processes on them."""

    fault: Fault
    made: Bench
    engines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """Host -> the process that its command line has become."""
    started_at: float = 0.0

    def start(self) -> None:
        """Everything that is broken before, the engine on each host, and what happens to it later. Raises NotSet."""
        self.made.prepare()
        self.started_at = time.time()
        for host in self.hosts:
            self.engines[host] = self.made.start(host)
        threading.Thread(target=self._reap, daemon=True).start()
        self.made.act()

    def _reap(self) -> None:
        """Nobody else asks how an engine has ended, and a zombie misleads who looks."""
        while not self.made.over:
            self.alive()
            time.sleep(0.2)

    @property
    def hosts(self) -> list[str]:
        """Those on which the engine is started. (A host that a fault leaves out of Ray is no node of it.)"""
        left_out = set() if self.fault.shape == "ray" else self.made.skip
        return [host for host in takes(self.made) if host not in left_out]

    def settle(self) -> None:
        """Waits until it stands still or has ended, whatever was meant to happen to it. Raises NotSet."""
        began = changed = time.monotonic()
        size, quiet_s = -1, QUIET_S.get(self.fault.shape, _QUIET_S)
        while time.monotonic() - began < SETTLE_S:
            if self.made.failures:
                raise NotSet(self.made.failures[0])
            new = sum(len(self.made.text(host)) for host in self.hosts)
            if new != size:
                size, changed = new, time.monotonic()
            over = all(process.poll() is not None for process in self.engines.values())
            if over or (time.monotonic() - changed > quiet_s and (self.made.acted_at or not self.made.acts)):
                return
            time.sleep(0.2)

    def state(self, host: str) -> str:
        """What a process list says of the engine on `host`."""
        if host not in self.engines:
            return "node of Ray" if self.fault.shape == "ray" and host not in self.made.skip else "no engine"
        code = self.engines[host].poll()
        if code is None:
            return "runs"
        return f"ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def alive(self) -> list[str]:
        """Hosts whose engine has not ended."""
        return [host for host, process in self.engines.items() if process.poll() is None]

    def ncdiag(self, *, short: bool = False) -> tuple[list[str], str]:
        """The arguments that fit, and the host where they are given: a watch beside what still runs, else the logs of what has ended.

        `short`: as in a shell on the host, which begins in the lab's folder and knows the configuration of SSH.
        """
        logs = [self.made.log(host) for host in self.hosts]
        names = [log.name if short else str(log) for log in logs]
        alive = self.alive()
        if not alive:
            return ["diagnose", *names], next(iter(self.made.hosts.hosts))
        here = alive[0]
        others = [host for host in self.made.hosts.hosts if host != here]
        where = []  # nodes of Ray are found by the process
        if self.fault.shape in ("gloo", "nodes") and others:
            where = ["--nodes", f"ssh:{','.join(others)}"]
            where += [] if short else ["--ssh-config", str(self.made.ssh.config)]
        where += ["--stall-after", "10"] if short else []
        follow = [word for name in names for word in ("--follow", name)]
        return ["bringup", "--attach", str(self.engines[here].pid), *where, *follow], here

    def look(self, *options: str) -> tuple[dict[str, Any], str]:
        """What ncdiag makes of it now: its JSON and its words."""
        arguments, host = self.ncdiag()
        out = self.made.hosts.folder / "look.json"
        out.unlink(missing_ok=True)
        if arguments[0] == "bringup":
            arguments += ["--stall-after", "6", "--timeout", str(LOOK_S), "--on-stall", "stop", "--then", "stop"]
        argv = [sys.executable, "-m", "ncdiag", *arguments, *options, "--format", "json", "-o", str(out)]
        environment = {"PYTHONPATH": str(ROOT)}
        if columns() < UNBOUNDED:
            environment["COLUMNS"] = str(columns())
        try:
            done = self.made.hosts[host].run(*argv, env=environment, timeout_s=LOOK_S + 60)
            words = done.stderr + done.stdout
        except subprocess.TimeoutExpired:
            words = f"ncdiag gave no answer within {LOOK_S + 60:.0f} s"
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads(out.read_text())), words
        return {}, words

    def ways(self) -> list[str]:
        """The exact way in which it was broken, one change a line."""
        usual = Bench(self.made.hosts, self.made.ssh, self.made.shape, self.made.model)
        lines = [f"on {host}: nothing was started" for host in sorted(self.made.skip)]
        for host in self.made.hosts.hosts:
            if host in usual.env and host not in self.made.skip:
                lines += _differences(host, usual.environment(host), self.made.environment(host))
                before, after = usual.command(host), self.made.command(host)
                extra = [word for word in after if word not in before]
                gone = [word for word in before if word not in after]
                lines += [f"on {host}: its command has {' '.join(extra)}"] if extra else []
                lines += [f"on {host}: its command lacks {' '.join(gone)}"] if gone else []
            lines += [f"on {host}: {script}" for script in self.made.hosts[host].scripts]
        if self.made.acted_at:
            lines.append(f"it happened {self.made.acted_at - self.started_at:.0f} s after the start")
        return lines


def _differences(host: str, usual: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    for name in sorted({*usual, *now}):
        if usual.get(name) == now.get(name):
            continue
        if name not in now:
            yield f"on {host}: {name} is not set (usual: {usual[name]})"
        else:
            was = f" (usual: {usual[name]})" if name in usual else ""
            yield f"on {host}: {name}={now[name]}{was}"


def takes(made: Bench) -> list[str]:
    """Hosts that a command line of the engine is for: of Ray and of one host the first only, of vLLM's own mode two, else all."""
    return list(made.hosts.hosts)[: {"gloo": None, "nodes": 2}.get(made.shape, 1)]


@contextmanager
def scene(fault: Fault) -> Iterator[Scene]:
    """Hosts with sshd on each, the fault set, the engine started; all of it ends with the block."""
    with broken(fault, None, sshd=("a", "b")) as made:
        shell.write(made)
        made.hosts.record.title = fault.shape
        made.hosts.record.save()
        found = Scene(fault, made)
        try:
            found.start()
            yield found
        finally:
            made.over = True
