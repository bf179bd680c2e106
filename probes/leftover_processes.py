"""No process of an earlier run is left.

An engine core or worker whose API server is gone still holds GPU memory, ports and shared memory; the next start then fails
with "address already in use" or too little free memory.

Source: /proc/PID/{stat,cmdline,status}; vLLM's process titles (`VLLM::EngineCore`, `VLLM::Worker_TP0`), Ray's (`ray::…`).
"""

from __future__ import annotations

import re
from typing import Iterator, List, Optional, TypedDict

from ncdiag import engine
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, unknown, warn

PART = re.compile(r"^VLLM::|^ray::RayWorker|multiprocessing\.spawn|multiprocessing\.resource_tracker|sglang::")
"""A process that only lives as part of an engine."""

STARTER = re.compile(r"vllm[\0/ ]serve|vllm\0serve|vllm\.entrypoints|sglang\.launch_server")
"""The process that a person starts."""


class Process(TypedDict):
    """One process of an engine."""

    pid: int
    parent: Optional[int]
    title: str
    """The command line, NULs as blanks, cut to 120 characters."""
    state: str
    """The letter in /proc/PID/stat."""
    part: bool
    """Whether it matches PART and not STARTER."""


class Facts(TypedDict):
    processes: List[Process]
    seen: int
    """Processes whose command line could be read."""


def collect(host: Host) -> Facts:
    found: List[Process] = []
    seen = 0
    for pid, line in engine.processes(host):
        seen += 1
        if not (engine.ENGINE_COMMAND.search(line) or STARTER.search(line) or line.startswith("VLLM::")):
            continue
        try:
            stat = host.read("/proc/%d/stat" % pid).rpartition(")")[2].split()
        except HostError:
            continue
        found.append(
            {
                "pid": pid,
                "parent": int(stat[1]),
                "state": stat[0],
                "title": line.replace("\0", " ").strip()[:120],
                "part": bool(PART.search(line)) and not STARTER.search(line),
            }
        )
    return {"processes": found, "seen": seen}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        if not facts["seen"]:
            yield unknown("no process could be seen", node, source="/proc")
            continue
        pids = {process["pid"] for process in facts["processes"]}
        orphans = [
            process
            for process in facts["processes"]
            if process["state"] != "Z"
            and process["part"]
            and process["parent"] not in pids
            and not process["title"].startswith("ray::")
        ]
        for process in orphans:
            yield warn(
                "process %d (%s) is left of an engine whose starter is gone"
                % (process["pid"], process["title"].split()[0]),
                node,
                source="/proc/%d/stat" % process["pid"],
                observed=process["title"],
                cause="stale-process",
                device="pid %d" % process["pid"],
                remedy="look at it (ps -fp %d), then end it: kill %d" % (process["pid"], process["pid"]),
            )
        running = [process for process in facts["processes"] if process not in orphans and process["state"] != "Z"]
        if running:
            yield ok(
                "an engine is running here: %s"
                % ", ".join(
                    "%d %s" % (process["pid"], process["title"].split()[0].rpartition("/")[2])
                    for process in running[:6]
                ),
                node,
                source="/proc",
            )
        elif not orphans:
            yield ok("none of the %d processes belongs to an engine" % facts["seen"], node, source="/proc")


PROBE = Probe("leftover-processes", "No process of an earlier run is left", judge, collect)
