"""The processes of this machine, and how they hang together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from ncdiag.host import Host
from ncdiag.processes import roles
from ncdiag.processes.proc import Proc, children_of, read_command, read_environ, table

SHELLS = {
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "tini",
    "dumb-init",
    "env",
    "timeout",
    "stdbuf",
    "nohup",
    "setsid",
    "nsenter",
    "numactl",
    "taskset",
}
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


class Machine:
    """All processes of one pid namespace; command lines and environments are read when they are asked for."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.processes = table(host)
        self.children = children_of(self.processes)
        self._read: set[int] = set()

    def get(self, pid: int) -> Proc | None:
        """The process with its command line and environment."""
        proc = self.processes.get(pid)
        if proc is not None and pid not in self._read:
            self._read.add(pid)
            read_command(self.host, proc)
            read_environ(self.host, proc)
        return proc

    def parent(self, proc: Proc) -> Proc | None:
        """Who started it; for what a fork server forked, who started the fork server."""
        parent = self.get(proc.parent)
        if parent is not None and roles.is_fork_server(parent):
            return self.get(parent.parent)
        return parent

    def top(self, pid: int) -> int:
        """The uppermost ancestor of `pid` that belongs to the same engine."""
        seen = {pid}  # pids are read one after the other: a number that was used again could close a circle
        while (above := self._step(pid)) is not None and above not in seen:
            seen.add(above)
            pid = above
        return pid

    def _step(self, pid: int) -> int | None:
        child = self.get(pid)
        if child is None:
            return None
        parent, near = self.parent(child), True
        while parent is not None and os.path.basename(parent.exe) in SHELLS:
            parent, near = self.get(parent.parent), False
        if parent is None:
            return None
        return parent.pid if roles.is_launcher(parent) or (near and self._belongs(child, parent)) else None

    def _belongs(self, child: Proc, parent: Proc) -> bool:
        if not roles.is_python(parent) or roles.titled_role(parent) == "ray-worker":
            return False
        if (
            roles.is_spawned(child)
            or roles.is_fork_server(child)
            or roles.is_helper(child)
            or roles.is_forked(child, parent)
            or child.state == "Z"
        ):
            return True
        return roles.titled_role(child) in ("engine-core", "worker", "coordinator")

    def rank_above(self, proc: Proc) -> int | None:
        """The rank whose program `proc` is, started by it or by its helpers: the nearest Python program above it, no launcher, that has the same
        rank in its environment; of one that ended before its own was read, that has any."""
        known, seen = _rank_named(proc), {proc.pid}
        above = self.get(proc.parent)
        while above is not None and above.pid not in seen and not roles.is_launcher(above):
            seen.add(above.pid)
            rank = _rank_named(above)
            if rank is not None and roles.is_python(above) and not roles.is_helper(above):
                return above.pid if known == rank or (known is None and not proc.environ) else None
            above = self.get(above.parent)
        return None

    def below(self, top: int) -> Iterator[Proc]:
        """`top` and all its descendants, parents first."""
        todo, seen = [top], set()
        while todo:
            proc = self.get(todo.pop())
            if proc is not None and proc.pid not in seen:
                seen.add(proc.pid)
                yield proc
                todo.extend(reversed(self.children.get(proc.pid, ())))

    def pythons(self) -> Iterator[Proc]:
        """Every Python program of the machine that is no helper."""
        for pid in self.processes:
            proc = self.get(pid)
            if (
                proc is not None
                and roles.is_python(proc)
                and not roles.is_helper(proc)
                and not roles.is_fork_server(proc)
            ):
                yield proc


def rank_of(proc: Proc) -> str | None:
    named = _rank_named(proc)
    return named[1] if named is not None else None


def _rank_named(proc: Proc) -> tuple[str, str] | None:
    """Variable and number."""
    return next(((name, proc.environ[name]) for name in RANK_NAMES if proc.environ.get(name, "").isdecimal()), None)


def inherits(proc: Proc) -> bool:
    """Whether its environment, and so the rank in it, is that of the process that forked it or that multiprocessing started it from: a data loader's
    is, and stays so when its parent is gone."""
    return proc.forked or roles.is_spawned(proc) or roles.is_fork_server(proc)


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of a command-line option, as `--name value` or `--name=value`; the last one counts."""
    words = [word for argument in argv for word in (argument.split(" ") if "::" in argument else [argument])]
    value = None
    for index, word in enumerate(words):
        name, equals, content = word.partition("=")
        if name.replace("_", "-") in names:
            value = content if equals else (words[index + 1] if index + 1 < len(words) else None)
    return value


def rendezvous(proc: Proc) -> tuple[str, str] | None:
    """Where its group meets: (address, port), for a process that has a rank of its own."""
    address, port = option(proc.argv, "--master-addr"), option(proc.argv, "--master-port")
    if port and re.search(r"\bserve\b", proc.command):
        return address or "127.0.0.1", port
    if rank_of(proc) is not None and proc.environ.get("MASTER_PORT") and not inherits(proc):
        return proc.environ.get("MASTER_ADDR", ""), proc.environ["MASTER_PORT"]
    return None
