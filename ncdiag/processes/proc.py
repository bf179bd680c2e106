"""One process as /proc shows it; every field with its file. Read through Host, so that secrets are masked at the door."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ncdiag.host import Host, HostError

STAT_LIMIT = 8192


@dataclass
class Proc:
    """What was read of one process. Times in clock ticks since boot."""

    pid: int
    comm: str = ""
    """/proc/PID/stat field 2, at most 15 characters."""
    state: str = ""
    """/proc/PID/stat field 3: R, S, D, T, t, Z, X, I."""
    parent: int = 0
    session: int = 0
    start_ticks: int = 0
    argv: list[str] = field(default_factory=list)
    """/proc/PID/cmdline, masked. A process title shows as one element."""
    environ: dict[str, str] = field(default_factory=dict)
    """/proc/PID/environ as it was at exec, masked; empty where it may not be read."""
    exe: str = ""
    forked: bool = False
    """Whether it runs the program that its parent ran when it forked it, and none of its own (/proc/PID/stat flags, PF_FORKNOEXEC)."""

    @property
    def command(self) -> str:
        """Its command line or title on one line; the name in brackets where it has none, as ps shows it."""
        return " ".join(self.argv).strip() or f"[{self.comm}]"


_PF_FORKNOEXEC = 0x40
"""include/linux/sched.h"""
_STAT = re.compile(r"(\d+) \((.*)\) (\S) (.*)", re.S)


def read_stat(host: Host, pid: int) -> Proc | None:
    """Name, state, parent, session and start of a process from /proc/PID/stat; None when it is gone."""
    try:
        match = _STAT.match(host.read_bytes(f"/proc/{pid}/stat", STAT_LIMIT).decode("utf-8", "backslashreplace"))
    except HostError:
        return None
    if match is None:
        return None
    rest = match.group(4).split()
    forked = bool(int(rest[5]) & _PF_FORKNOEXEC)
    return Proc(pid, match.group(2), match.group(3), int(rest[0]), int(rest[2]), int(rest[18]), forked=forked)


def read_command(host: Host, proc: Proc) -> None:
    """Adds `argv` and `exe`."""
    try:
        proc.argv = [part.strip() for part in host.read(f"/proc/{proc.pid}/cmdline").split("\0") if part.strip()]
    except HostError:
        pass
    try:
        proc.exe = re.sub(r" \(deleted\)$", "", host.link(f"/proc/{proc.pid}/exe"))
    except HostError:
        pass


def read_environ(host: Host, proc: Proc) -> None:
    """Adds `environ`."""
    try:
        content = host.read(f"/proc/{proc.pid}/environ")
    except HostError:
        return
    proc.environ = dict(item.split("=", 1) for item in content.split("\0") if "=" in item)


def table(host: Host) -> dict[int, Proc]:
    """Every process of this pid namespace by its pid, without command lines. Raises HostError when /proc cannot be listed."""
    found = (read_stat(host, int(name)) for name in host.list("/proc") if name.isdecimal())
    return {proc.pid: proc for proc in found if proc is not None}


def children_of(processes: dict[int, Proc]) -> dict[int, list[int]]:
    """Parent pid -> its children in the order of their start."""
    children: dict[int, list[int]] = {}
    for proc in sorted(processes.values(), key=lambda proc: (proc.start_ticks, proc.pid)):
        children.setdefault(proc.parent, []).append(proc.pid)
    return children


def status_fields(host: Host, path: str) -> dict[str, str]:
    """The `Name: value` lines of a /proc status file. Raises HostError."""
    return {
        name: value.strip() for name, _, value in (line.partition(":") for line in host.read(path, 65536).splitlines())
    }
