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

REAPER = re.compile(
    r"^(?:systemd|init|tini|dumb-init|docker-init|catatonit|containerd-shim|conmon|slurmstepd|supervisord|s6-|runsv)"
)
"""Programs that take in the children of those that have ended, by /proc/PID/comm; besides process 1."""

PYTHON = re.compile(r"^(?:python|pt_main_thread|ray::|VLLM)")
"""A program that itself may have started an engine: `LLM(...)` in a script, as process 1 of a container too."""


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
    parent_name: Optional[str]
    """/proc/PARENT/comm; None where it cannot be read."""


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
                "parent_name": _name(host, int(stat[1])),
            }
        )
    return {"processes": found, "seen": seen}


def _name(host: Host, pid: int) -> Optional[str]:
    try:
        return host.read("/proc/%d/comm" % pid).strip()
    except HostError:
        return None


def _taken_in(process: Process) -> bool:
    """Whether its parent is not who started it: any program may start an engine, and is no starter that has gone."""
    name = process["parent_name"] or ""
    return not PYTHON.match(name) if process["parent"] == 1 else bool(REAPER.match(name))


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
            and _taken_in(process)
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
