"""Which processes of this machine belong to one Ray job: their parent is the raylet, not the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.host import Host, HostError
from ncdiag.model import Socket
from ncdiag.processes import roles, sockets
from ncdiag.processes.machine import Machine
from ncdiag.processes.proc import Proc

NO_JOB = "ffffffff"
"""In the name of a worker's log: Ray started it before it knew for which job."""
_DRIVER_LOG = re.compile(r"/python-core-driver-([0-9a-f]{8})[0-9a-f]*_\d+")
_WORKER_LOG = re.compile(r"/worker-[0-9a-f]+-([0-9a-f]{8})-\d+\.(?:out|err)$")


def job_of(host: Host, proc: Proc) -> str | None:
    """The Ray job that a driver or a worker belongs to, by the names of the logs that it holds open."""
    folder = f"/proc/{proc.pid}/fd"
    try:
        names = host.list(folder)
    except HostError:
        return None
    for name in names:
        try:
            target = host.link(f"{folder}/{name}")
        except HostError:
            continue
        match = _DRIVER_LOG.search(target) or _WORKER_LOG.search(target)
        if match:
            return match.group(1)
    return proc.environ.get("RAY_JOB_ID") or None


class _Links:
    """Who has a connection with whom."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tables = sockets.Tables(host)
        self._read: dict[int, list[Socket]] = {}

    def _of(self, pid: int) -> list[Socket]:
        if pid not in self._read:
            try:
                self._read[pid] = [
                    socket for socket in sockets.read(self._host, pid, self._tables)[1] if socket.state == "ESTABLISHED"
                ]
            except HostError:
                self._read[pid] = []
        return self._read[pid]

    def talk(self, proc: Proc, others: Sequence[Proc]) -> bool:
        """Whether `proc` has a connection with one of `others`."""
        ends = {socket.local for other in others for socket in self._of(other.pid)}
        return any(socket.remote in ends for socket in self._of(proc.pid) if socket.remote)


def allies(machine: Machine, members: Sequence[Proc]) -> Iterator[Proc]:
    """Driver and workers of the jobs of `members`. A worker that Ray started ahead of any job belongs to the one whose processes it talks to."""
    if not any(proc.comm == "raylet" for proc in machine.processes.values()):
        return
    jobs, links = {job for proc in members if (job := job_of(machine.host, proc))}, _Links(machine.host)
    if not jobs:
        return
    pids = {proc.pid for proc in members}
    others = [
        (proc, job_of(machine.host, proc))
        for proc in machine.pythons()
        if proc.pid not in pids and "ray::IDLE" not in proc.command
    ]
    known = jobs - {NO_JOB} or _jobs_talked_to(links, members, others)
    mine = [*members, *(proc for proc, job in others if job in known)]
    yield from (proc for proc, job in others if job in known)
    ahead = [proc for proc, job in others if job == NO_JOB and roles.titled_role(proc) == "ray-worker"]
    only = not [job for _, job in others if job and job not in known and job != NO_JOB]
    yield from (proc for proc in ahead if only or links.talk(proc, mine))


def _jobs_talked_to(links: _Links, procs: Sequence[Proc], others: Sequence[tuple[Proc, str | None]]) -> set[str]:
    named = [(other, job) for other, job in others if job and job != NO_JOB]
    jobs = {job for _, job in named}
    return jobs if len(jobs) < 2 else {job for other, job in named if any(links.talk(proc, [other]) for proc in procs)}
