"""From any pid of an engine to all its processes on this machine, each with its role.

Up: as long as the parent belongs to the engine. Down: every Python descendant; helpers (resource trackers, compile workers, data loaders,
compilers) are not members, but named at the member they work for. Sideways: what shares a rendezvous (MASTER_ADDR and MASTER_PORT, vLLM's
--master-addr and --master-port) or a Ray job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ncdiag.host import Host, HostError
from ncdiag.processes import roles
from ncdiag.processes.proc import Proc, children_of, read_command, read_environ, status_fields, table

_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "tini", "dumb-init", "env", "timeout", "stdbuf", "nohup", "setsid", "nsenter", "numactl", "taskset"}
_SILENT = re.compile(r"multiprocessing\.(?:resource_tracker|semaphore_tracker|forkserver)|multiprocessing/resource_tracker")
_RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
_RAY_DRIVER_LOG = re.compile(r"/python-core-driver-([0-9a-f]{8})[0-9a-f]*_\d+")
_RAY_WORKER_LOG = re.compile(r"/worker-[0-9a-f]+-([0-9a-f]{8})-\d+\.(?:out|err)$")


class FamilyError(Exception):
    """The pid leads to no family; the text says why and what to do."""


@dataclass
class Member:
    """One process of the engine that can be waited for."""

    proc: Proc
    role: str
    helpers: list[Proc] = field(default_factory=list)
    """Its helper children and theirs: compilers, data loaders, compile workers."""


Family = dict[int, Member]
"""pid -> member, ancestors before their children."""


class _Finder:
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
        seen = {pid}      # pids are read one after the other: a number that was used again could close a circle
        while (above := self._step(pid)) is not None and above not in seen:
            seen.add(above)
            pid = above
        return pid

    def _step(self, pid: int) -> int | None:
        child = self.get(pid)
        if child is None:
            return None
        parent, near = self.parent(child), True
        while parent is not None and os.path.basename(parent.exe) in _SHELLS:
            parent, near = self.get(parent.parent), False
        if parent is None:
            return None
        return parent.pid if roles.is_launcher(parent) or (near and self._belongs(child, parent)) else None

    def _belongs(self, child: Proc, parent: Proc) -> bool:
        if not roles.is_python(parent) or roles.titled_role(parent) == "ray-worker":
            return False
        if roles.is_spawned(child) or roles.is_fork_server(child) or roles.is_helper(child) or roles.is_forked(child, parent) or child.state == "Z":
            return True
        return roles.titled_role(child) in ("engine-core", "worker", "coordinator")

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
            if proc is not None and roles.is_python(proc) and not roles.is_helper(proc) and not roles.is_fork_server(proc):
                yield proc

    def file_names(self, pid: int) -> Iterator[str]:
        """What the descriptors of `pid` lead to."""
        folder = f"/proc/{pid}/fd"
        try:
            names = self.host.list(folder)
        except HostError:
            return
        for name in names:
            try:
                yield self.host.link(f"{folder}/{name}")
            except HostError:
                continue

    def ray_job(self, proc: Proc) -> str | None:
        """The Ray job that a driver or a worker belongs to, by the names of the logs that it holds open."""
        for name in self.file_names(proc.pid):
            match = _RAY_DRIVER_LOG.search(name) or _RAY_WORKER_LOG.search(name)
            if match:
                return match.group(1)
        return proc.environ.get("RAY_JOB_ID") or None


def _rank_of(proc: Proc) -> str | None:
    return next((proc.environ[name] for name in _RANK_NAMES if proc.environ.get(name, "").isdigit()), None)


def option(argv: Sequence[str], *names: str) -> str | None:
    """The value of a command-line option, as `--name value` or `--name=value`; the last one counts."""
    words = [word for argument in argv for word in (argument.split(" ") if "::" in argument else [argument])]
    value = None
    for index, word in enumerate(words):
        name, equals, content = word.partition("=")
        if name.replace("_", "-") in names:
            value = content if equals else (words[index + 1] if index + 1 < len(words) else None)
    return value


def _rendezvous(proc: Proc) -> tuple[str, str] | None:
    """Where its group meets: (address, port), for a process that has a rank of its own."""
    address, port = option(proc.argv, "--master-addr"), option(proc.argv, "--master-port")
    if port and re.search(r"\bserve\b", proc.command):
        return address or "127.0.0.1", port
    if _rank_of(proc) is not None and proc.environ.get("MASTER_PORT"):
        return proc.environ.get("MASTER_ADDR", ""), proc.environ["MASTER_PORT"]
    return None


def find(host: Host, pids: Iterable[int]) -> Family:
    """The families of all `pids` together. Raises FamilyError when a pid is no process here."""
    finder, family = _Finder(host), Family()
    tops = dict.fromkeys(finder.top(_checked(finder, pid)) for pid in pids)
    for top in tops:
        _add(finder, family, top)
    for proc in list(_allies(finder, family)):
        if proc.pid not in family:
            _add(finder, family, finder.top(proc.pid) if roles.titled_role(proc) != "ray-worker" else proc.pid)
    return family


def _checked(finder: _Finder, pid: int) -> int:
    if pid in finder.processes:
        return pid
    inside = [other for other in finder.processes if _inner_pid(finder.host, other) == pid]
    if inside:
        listed = ", ".join(str(other) for other in inside[:5])
        raise FamilyError(f"no process {pid} here; inside a container that number is process {listed} of this machine: give that one")
    raise FamilyError(f"no process {pid} here: it has ended, or the number is from another container or machine")


def _inner_pid(host: Host, pid: int) -> int | None:
    try:
        numbers = status_fields(host, f"/proc/{pid}/status").get("NSpid", "").split()
    except HostError:
        return None
    return int(numbers[-1]) if len(numbers) > 1 else None


def _add(finder: _Finder, family: Family, top: int) -> None:
    nearest: dict[int, int] = {}
    for proc in finder.below(top):
        owner = nearest.get(proc.parent)
        if proc.pid in family:
            nearest[proc.pid] = proc.pid
        elif proc.pid == top or not _is_helper(finder, proc, family[owner] if owner is not None else None):
            parent = finder.parent(proc) if proc.pid != top else None
            role = roles.role_of(proc, parent, family[parent.pid].role if parent is not None and parent.pid in family else None)
            family[proc.pid] = Member(proc, role)
            nearest[proc.pid] = proc.pid
        elif owner is not None:
            nearest[proc.pid] = owner
            if not _SILENT.search(proc.command) and os.path.basename(proc.exe) not in _SHELLS:
                family[owner].helpers.append(proc)
    _name_launchers(finder, family)


def _is_helper(finder: _Finder, proc: Proc, owner: Member | None) -> bool:
    if proc.state == "Z":
        return not (roles.titled_role(proc) or proc.comm.startswith(("python", "pt_main_thread")))
    if roles.is_fork_server(proc):
        parent = finder.get(proc.parent)
        return parent is None or not roles.is_fork_server(parent)
    if not (roles.is_python(proc) or roles.is_launcher(proc)) or roles.is_helper(proc):
        return True
    if owner is None or roles.titled_role(proc) or owner.role != "script":
        return False
    rank = _rank_of(proc)
    return rank is not None and rank == _rank_of(owner.proc)       # a data loader: its parent's rank is not its own


def _name_launchers(finder: _Finder, family: Family) -> None:
    """A plain program that itself has no rank and whose children are ranks only starts them."""
    parents = {parent.pid for member in family.values() if member.role == "script" and (parent := finder.parent(member.proc))}
    for pid, member in family.items():
        if member.role == "script" and pid in parents and _rank_of(member.proc) is None:
            member.role = "launcher"


def _allies(finder: _Finder, family: Family) -> Iterator[Proc]:
    """Programs elsewhere on the machine that are part of the same job."""
    meetings = {place for member in family.values() if (place := _rendezvous(member.proc))}
    raylet = any(proc.comm == "raylet" for proc in finder.processes.values())
    jobs = {job for member in family.values() if raylet and (job := finder.ray_job(member.proc))}
    if not meetings and not jobs:
        return
    for proc in finder.pythons():
        if proc.pid not in family and (_rendezvous(proc) in meetings or (
                jobs and "ray::IDLE" not in proc.command and finder.ray_job(proc) in jobs)):
            yield proc
