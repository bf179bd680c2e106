"""Processes that are of no engine, or not yet: what runs below a command beside it. Travels to nodes: standard library, Python 3.8."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Dict, Iterable, List

from ncdiag import redact
from ncdiag.host import Host, HostError
from ncdiag.processes import kernel, progress
from ncdiag.processes.proc import Proc

MOST = 64
"""Processes that are told, the youngest ones."""


class Others:
    """Remembers the last look, so that progress is what moved since then."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.counters: Dict[int, progress.Counters] = {}

    def look(self, processes: Iterable[Proc]) -> List[Dict[str, Any]]:
        """The youngest of them, oldest first, each with `pid`, `command`, `state`, `wchan` and `progress`."""
        alive = [proc for proc in processes if proc.state not in ("Z", "X")]
        return [self._of(proc) for proc in sorted(alive, key=lambda proc: (proc.start_ticks, proc.pid))[-MOST:]]

    def _of(self, proc: Proc) -> Dict[str, Any]:
        now, moved = progress.look(self._host, proc.pid), None
        if now is not None:
            moved = progress.between(self.counters.get(proc.pid) or self._at_birth(proc, now), now)
            self.counters[proc.pid] = now
        return {
            "pid": proc.pid,
            "command": redact.text(proc.command)[:200],
            "state": proc.state,
            "wchan": kernel.look(self._host, proc.pid).wchan,
            "progress": asdict(moved) if moved is not None else None,
        }

    def _at_birth(self, proc: Proc, now: progress.Counters) -> progress.Counters:
        """What a process that was not seen before had when it started. The memory that every program takes to start is no progress."""
        try:
            age_s = float(self._host.read("/proc/uptime").split()[0]) - proc.start_ticks / progress.TICKS
        except (HostError, ValueError):
            age_s = 0.0
        return progress.Counters(now.at - max(age_s, 0.1), faults=now.faults, rss_bytes=now.rss_bytes, io_known=True)
