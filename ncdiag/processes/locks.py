"""Who holds the file lock that a process waits for: the kernel writes that down for flock, POSIX and open-file-description locks.

Source: /proc/locks (proc_locks(5)): a waiter's line has `->` and the number of the lock that it waits for; /proc/PID/fdinfo/FD (proc(5)).
Locks of threads and of multiprocessing are words in memory: nothing outside the processes says who holds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from ncdiag.host import Host, HostError

LINE = re.compile(r"(\d+): *(->)? *(FLOCK|POSIX|OFDLCK) +\S+ +\S+ +(-?\d+) +([0-9a-f]+:[0-9a-f]+:\d+)")
KINDS = {"FLOCK": "flock", "POSIX": "fcntl lock", "OFDLCK": "fcntl lock of an open file"}
POLLED = "lock file"
"""Kind of a lock that is asked for again and again (the filelock package), as downloads and compile caches do."""
MAX_FILES = 4096
"""Open files of one process that are searched for a lock."""


class Lock(NamedTuple):
    """One line of /proc/locks."""

    number: int
    waits: bool
    kind: str
    pid: int
    """Of the process that asked for it; -1 or 0 where no process here is named."""
    file: str
    """`major:minor:inode`"""


def parse(text: str) -> list[Lock]:
    """Every lock and every process that waits for one; lines of another form are passed over."""
    return [
        Lock(int(number), bool(arrow), kind, int(pid), file)
        for number, arrow, kind, pid, file in (match.groups() for match in LINE.finditer(text))
    ]


def waited_for(host: Host, pids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Pid of a process that waits for a file lock -> `kind`, `file` (path, may be empty), `holder` (pid, None where that is not known), `command`."""
    try:
        locks = parse(host.read("/proc/locks", 4 << 20))
    except HostError:
        return {}
    family = list(pids)
    held = {lock.number: lock for lock in locks if not lock.waits}
    found = {}
    for lock in locks:
        if lock.waits and lock.pid in family and lock.number in held:
            found[lock.pid] = _told(host, held[lock.number], family)
    return found


def locked_files(host: Host) -> list[dict[str, Any]]:
    """Every `*.lock` file that a Python here has locked, in the form of `waited_for`: who polls for such a file stands in no table."""
    try:
        locks = parse(host.read("/proc/locks", 4 << 20))
    except HostError:
        return []
    found = {}
    for lock in locks:
        path = _path(host, lock.pid, lock) if lock.pid > 0 and not lock.waits else ""
        if path.endswith(".lock") and _is_python(host, lock.pid):
            found[path] = {"kind": POLLED, "file": path, "holder": lock.pid, "command": _command(host, lock.pid)}
    return list(found.values())


def _told(host: Host, lock: Lock, family: Iterable[int]) -> dict[str, Any]:
    """A lock outlives the process that took it where a child inherited the open file: then that one holds it."""
    for pid in (lock.pid, *family):
        path = _path(host, pid, lock) if pid > 0 else ""
        if path:
            return {"kind": KINDS[lock.kind], "file": path, "holder": pid, "command": _command(host, pid)}
    alive = lock.pid > 0 and bool(_command(host, lock.pid))
    return {
        "kind": KINDS[lock.kind],
        "file": "",
        "holder": lock.pid if alive else None,
        "command": _command(host, lock.pid) if alive else "",
    }


def _path(host: Host, pid: int, lock: Lock) -> str:
    """The file that `pid` holds the lock on; empty where it does not hold it, or may not be asked."""
    try:
        for number in host.list(f"/proc/{pid}/fdinfo")[:MAX_FILES]:
            held = [one for one in parse(host.read(f"/proc/{pid}/fdinfo/{number}", 65536)) if not one.waits]
            if any((one.kind, one.file) == (lock.kind, lock.file) for one in held):
                return host.link(f"/proc/{pid}/fd/{number}")
    except HostError:
        pass
    return ""


def _is_python(host: Host, pid: int) -> bool:
    try:
        return host.link(f"/proc/{pid}/exe").rpartition("/")[2].startswith(("python", "pypy"))
    except HostError:
        return False


def _command(host: Host, pid: int) -> str:
    try:
        return host.read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:200]
    except HostError:
        return ""
