"""What moves between two looks at a process, and between two looks at its helper children."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ncdiag.host import Host, HostError
from ncdiag.model import Progress
from ncdiag.processes.family import Member
from ncdiag.processes.proc import status_fields

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
RSS_FAULTS = 16
"""Page faults below which a change of RSS is noise: the kernel counts resident pages per CPU and adds them up late, so that
the RSS of an idle process jumps by hundreds of KiB; memory that is really taken faults in."""


@dataclass
class Counters:
    """Counters of one process at one time, since its start."""

    at: float
    """`time.monotonic()`."""
    cpu_s: float = 0.0
    """/proc/PID/stat utime + stime."""
    faults: int = 0
    """/proc/PID/stat minflt + majflt."""
    rss_bytes: int = 0
    """/proc/PID/stat rss."""
    read_bytes: int = 0
    """/proc/PID/io read_bytes."""
    rchar: int = 0
    written_bytes: int = 0
    """/proc/PID/io write_bytes."""
    wchar: int = 0
    """What write() was given: pages that are dirty already, and file systems in memory, are in no other counter."""
    io_known: bool = False
    children_cpu_s: float = 0.0
    children_bytes: dict[int, int] = field(default_factory=dict)
    """Helper child -> /proc/PID/io rchar + wchar, of a shell wchar alone: who asks for something again and again reads programs, and writes nothing."""
    own_rchar: int = 0
    """/proc/PID/task/PID/io rchar: what the main thread read."""


def _stat_numbers(host: Host, pid: int) -> list[int]:
    """Fields 4 and on of /proc/PID/stat. Raises HostError."""
    return [
        int(number)
        for number in host.read_bytes(f"/proc/{pid}/stat").decode("ascii", "replace").rpartition(") ")[2].split()[1:]
    ]


def _cpu(numbers: Sequence[int]) -> float:
    return (numbers[10] + numbers[11]) / TICKS


def _ended_cpu(numbers: Sequence[int]) -> float:
    """Of the children that have ended, and theirs."""
    return (numbers[12] + numbers[13]) / TICKS


def look(host: Host, pid: int, member: Member | None = None) -> Counters | None:
    """One look; None when the process is gone. `member`: whose helpers are looked at, too, with what their children did that have ended."""
    try:
        numbers = _stat_numbers(host, pid)
    except (HostError, ValueError):
        return None
    if len(numbers) < 21:
        return None
    counters = Counters(time.monotonic(), _cpu(numbers), numbers[6] + numbers[8], numbers[20] * PAGE)
    helpers = [helper.pid for helper in member.helpers] if member is not None else []
    wrappers = [wrapper.pid for wrapper in member.wrappers] if member is not None else []
    counters.children_cpu_s = _ended_cpu(numbers) + sum(_helper_cpu(host, helper) for helper in (*helpers, *wrappers))
    counters.children_bytes = {
        **{helper: _helper_bytes(host, helper, "rchar", "wchar") for helper in helpers},
        **{wrapper: _helper_bytes(host, wrapper, "wchar") for wrapper in wrappers},
    }
    try:
        fields = status_fields(host, f"/proc/{pid}/io")
        counters.read_bytes, counters.rchar, counters.written_bytes, counters.wchar = (
            int(fields[name]) for name in ("read_bytes", "rchar", "write_bytes", "wchar")
        )
        counters.io_known = True
        counters.own_rchar = int(status_fields(host, f"/proc/{pid}/task/{pid}/io")["rchar"])
    except (HostError, KeyError, ValueError):
        pass
    return counters


def _helper_cpu(host: Host, pid: int) -> float:
    try:
        numbers = _stat_numbers(host, pid)
        return _cpu(numbers) + _ended_cpu(numbers)
    except (HostError, ValueError, IndexError):
        return 0.0


def _helper_bytes(host: Host, pid: int, *names: str) -> int:
    """/proc/PID/io holds what children that have ended did, too."""
    try:
        fields = status_fields(host, f"/proc/{pid}/io")
        return sum(int(fields[name]) for name in names)
    except (HostError, KeyError, ValueError):
        return 0


def between(first: Counters, second: Counters) -> Progress:
    """What moved from the first look to the second. A counter that went back (a helper ended) counts as 0."""
    faults = second.faults - first.faults
    growth = second.rss_bytes - first.rss_bytes if faults >= RSS_FAULTS else 0
    return Progress(
        round(second.at - first.at, 3),
        round(second.cpu_s - first.cpu_s, 3),
        second.read_bytes - first.read_bytes,
        second.rchar - first.rchar,
        max(second.written_bytes - first.written_bytes, second.wchar - first.wchar),
        growth,
        faults,
        children_cpu_s=round(max(second.children_cpu_s - first.children_cpu_s, 0.0), 3),
        children_bytes=max(
            (
                count - first.children_bytes[pid]
                for pid, count in second.children_bytes.items()
                if first.children_bytes.get(pid)
            ),
            default=0,
        ),
        own_rchar=max(second.own_rchar - first.own_rchar, 0),
    )
