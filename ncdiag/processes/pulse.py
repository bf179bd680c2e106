"""The pulse of a main thread: whether it woke in a while, what it read itself, and for how long it has not run at all.

A process that sleeps 5 s in every step and one that sleeps for good look the same for 3 s. They differ in how long the thread has been asleep,
and in whether those that wait for it wake in between.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ncdiag.host import Host, HostError
from ncdiag.processes.proc import status_fields

QUIET_S = 0.5
"""Seconds without a pause for a stack below which a count of wake-ups says nothing; the pause itself wakes a thread."""
ASLEEP = "SDTt"
"""Letters of threads that do not run and do not wait for a CPU."""
_LAST_RUN = "se.exec_start"


@dataclass
class Pulse:
    """One look at a main thread."""

    at: float
    """`time.monotonic()`."""
    sleeps: int
    """/proc/PID/task/PID/status voluntary_ctxt_switches: how often it went to sleep."""


def take(host: Host, pid: int) -> Optional[Pulse]:
    """None where it is gone, or the kernel does not say."""
    try:
        return Pulse(
            time.monotonic(), int(status_fields(host, f"/proc/{pid}/task/{pid}/status")["voluntary_ctxt_switches"])
        )
    except (HostError, KeyError, ValueError):
        return None


def woken(first: Optional[Pulse], second: Optional[Pulse]) -> Optional[int]:
    """How often it woke and went to sleep again in between; None where that was too short, or not read."""
    if first is None or second is None or second.at - first.at < QUIET_S:
        return None
    return max(second.sleeps - first.sleeps, 0)


def turns(host: Host, pid: int) -> Dict[int, int]:
    """Thread id -> how often it has left a CPU (/proc/PID/task/TID/status), of the threads that are not on one, or about to be."""
    found: Dict[int, int] = {}
    try:
        names = host.list(f"/proc/{pid}/task")
    except HostError:
        return found
    for name in names:
        try:
            fields = status_fields(host, f"/proc/{pid}/task/{name}/status")
            if fields["State"][:1] in ASLEEP:
                found[int(name)] = int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])
        except (HostError, KeyError, ValueError):
            continue
    return found


def slept(first: Mapping[int, int], second: Mapping[int, int]) -> Set[int]:
    """The threads that have not run between two answers of `turns`: to have run, one has to have left the CPU again."""
    return {tid for tid, count in second.items() if first.get(tid) == count}


def still_s(host: Host, pid: int, threads: Iterable[int]) -> Dict[int, float]:
    """Thread id -> seconds in which it has not run, by the scheduler's own clock (/proc/PID/task/TID/sched); those of which the kernel does not say
    are left out.

    Every CPU has a clock of its own, which stands still while it works on interrupts or is taken by the hypervisor: they part by seconds to hours. So
    a thread is held against the CPU on which it ran last.
    """
    last: Dict[int, List[Tuple[int, float]]] = {}
    for tid in threads:
        cpu, at = _last_cpu(host, pid, tid), _last_run(host, f"/proc/{pid}/task/{tid}/sched")
        if cpu is not None and at is not None:
            last.setdefault(cpu, []).append((tid, at))
    found: Dict[int, float] = {}
    allowed = os.sched_getaffinity(0)
    try:
        for cpu, those in last.items():
            now = _now_on(host, cpu)
            if now is not None:
                found.update((tid, round(max(now - at, 0.0) / 1000, 1)) for tid, at in those)
    finally:
        os.sched_setaffinity(0, allowed)
    return found


def _now_on(host: Host, cpu: int) -> Optional[float]:
    """The clock of a CPU, for which this thread moves there; None where it may not."""
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return None
    return _last_run(host, "/proc/thread-self/sched")


def _last_cpu(host: Host, pid: int, tid: int) -> Optional[int]:
    """Source: proc(5), field `processor` of stat."""
    try:
        return int(host.read(f"/proc/{pid}/task/{tid}/stat").rpartition(")")[2].split()[36])
    except (HostError, ValueError, IndexError):
        return None


def _last_run(host: Host, path: str) -> Optional[float]:
    """Milliseconds of the scheduler's clock; that of a thread that runs is now."""
    try:
        for line in host.read(path, 65536).splitlines():
            if line.startswith(_LAST_RUN):
                return float(line.rpartition(":")[2])
    except (HostError, ValueError):
        pass
    return None
