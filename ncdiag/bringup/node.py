"""Looks at the engine's processes on this machine, again and again. Travels to nodes: standard library, Python 3.8."""

from __future__ import annotations

import os
import re
import threading
import time
import zlib
from dataclasses import asdict
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

from ncdiag import redact
from ncdiag.bringup.others import Others
from ncdiag.host import Host, HostError
from ncdiag.model import RankState
from ncdiag.processes import progress, ranks, ray, roles, stacks
from ncdiag.processes.family import FamilyError, Member
from ncdiag.processes.look import Options
from ncdiag.processes.machine import Machine, option, rendezvous
from ncdiag.processes.proc import Proc, read_stat
from ncdiag.processes.sample import Sampler

MARK = "ncdiag-look "
"""How a line of the answer begins; whatever else a login prints is passed over."""
QUICK = Options(window_s=0.2, native="none", budget_s=8.0)
FULL = Options(window_s=3.0, native="auto", variables=True, budget_s=20.0)
SHORT = Options(window_s=1.5, native="auto", variables=True, budget_s=4.0)
"""A full look when the time for the start has run out."""
TAIL_BYTES = 256 << 10
LINES = 400
_ENGINE = ("api-server", "engine-core", "worker", "headless", "ray-worker", "coordinator")
_REMEMBERED = ("worker", "ray-worker", "script", "engine-core", "headless", "api-server")
POLL_S = 0.05
_TASK = "ray::ncdiag"
_IDLE = re.compile(r"^ray::IDLE|ray/_private/workers/default_worker\.py")


class Node:
    """Remembers the last look, so that progress is what moved since then, and who has gone."""

    def __init__(self, host: Optional[Host] = None) -> None:
        self.host = host or Host()
        self._counters: Dict[int, progress.Counters] = {}
        self._frames: Dict[int, int] = {}
        self._last: Dict[int, RankState] = {}
        self._gone: Dict[int, RankState] = {}
        self._files: Dict[str, None] = {}
        self._own: Set[int] = set()
        self._met = False
        self._seen: Dict[int, int] = {}
        self._beside = Others(self.host)
        self._alive: Dict[int, Optional[float]] = {}
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        """Between looks: when each process of the last look ended. The first one to end matters, and the others follow within a second."""
        while True:
            for pid in [pid for pid, ended in list(self._alive.items()) if ended is None]:
                try:
                    if self.host.read_bytes("/proc/%d/stat" % pid, 8192).rpartition(b") ")[2][:1] not in (b"Z", b"X"):
                        continue
                except HostError:
                    pass
                self._alive[pid] = time.monotonic()
            time.sleep(POLL_S)

    def look(self, request: Mapping[str, Any]) -> Dict[str, Any]:
        """`request`: `pids` or `guard` (whose descendants are meant), else `meeting`, `job`; `full`, `short`; `files` to read.

        The answer: `node`, `states`, `logs` (name -> last lines), `job` (of Ray), `notes`, `ended_ago_s` (pid -> seconds since its end), `oom_kills`,
        of a started command `own` (all pids that were ever below it) and `strangers` (of the same engine, but not below it),
        and where nothing of an engine is among the descendants, or a Ray job is meant, `others`: what else is there, each with pid, command,
        state, wchan and `progress` since the last look.
        """
        answer: Dict[str, Any] = {
            "node": self.host.node,
            "states": [],
            "logs": {},
            "notes": [],
            "job": None,
            "oom_kills": self._oom_kills(),
        }
        machine = Machine(self.host)
        pids, own = self._pids(machine, request)
        states: List[RankState] = []
        if pids:
            try:
                states = self._sample(machine, pids, own, request, answer)
            except FamilyError as error:
                answer["notes"].append(str(error))
        if request.get("ray"):
            answer["others"] = self._beside.look(self._becoming_workers(machine, request))
        elif not pids and (request.get("guard") or request.get("pids")):
            answer["others"] = self._others(machine, request)
        states += self._ended(states)
        answer["states"] = [state.as_dict() for state in states]
        self._alive = {
            **{state.pid: None for state in states},
            **{pid: at for pid, at in self._alive.items() if at is not None},
        }
        answer["ended_ago_s"] = {
            str(pid): round(time.monotonic() - at, 2) for pid, at in self._alive.items() if at is not None
        }
        for path in [*request.get("files", ()), *self._files]:
            if path not in answer["logs"]:
                lines = tail(path)
                if lines:
                    answer["logs"][path] = lines
        return answer

    def memory(self) -> Dict[str, Any]:
        """What `remember` needs, as plain JSON: for a look in another process on the same machine."""
        return {
            "counters": {str(pid): asdict(counters) for pid, counters in self._counters.items()},
            "frames": {str(pid): value for pid, value in self._frames.items()},
            "last": [_bare(state) for state in self._last.values()],
            "gone": [_bare(state) for state in self._gone.values()],
            "files": list(self._files),
            "seen": {str(pid): times for pid, times in self._seen.items()},
            "beside": {str(pid): asdict(counters) for pid, counters in self._beside.counters.items()},
        }

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Takes the place of the Node whose `memory` this is."""
        self._counters = {int(pid): progress.Counters(**counters) for pid, counters in memory["counters"].items()}
        self._frames = {int(pid): value for pid, value in memory["frames"].items()}
        self._last = {state.pid: state for state in map(RankState.from_dict, memory["last"])}
        self._gone = {state.pid: state for state in map(RankState.from_dict, memory["gone"])}
        self._files = dict.fromkeys(memory["files"])
        self._seen = {int(pid): times for pid, times in memory["seen"].items()}
        self._beside.counters = {int(pid): progress.Counters(**counters) for pid, counters in memory["beside"].items()}

    def _sample(
        self, machine: Machine, pids: List[int], own: Set[int], request: Mapping[str, Any], answer: Dict[str, Any]
    ) -> List[RankState]:
        full = bool(request.get("full"))
        sampler = Sampler(self.host, pids, (SHORT if request.get("short") else FULL) if full else QUICK)
        for pid in [
            pid for pid in sampler.family if pid == request.get("guard") or (pid not in own and not self._near(pid))
        ]:
            del sampler.family[pid]
        if request.get("guard"):
            self._own |= own
            answer["own"] = sorted(self._own)
            answer["strangers"] = sorted(pid for pid in sampler.family if pid not in self._own)
        sampler.begin()
        taken = sampler.finish()
        answer["notes"] += taken.notes
        for name, log in taken.logs.items():
            answer["logs"][name] = (log.head + log.tail)[-LINES:]
            self._files[name] = None
        answer["job"] = next(
            (
                job
                for look in sampler.looks.values()
                if look.member.role in ("engine-core", "api-server", "script")
                and (job := ray.job_of(self.host, look.member.proc))
                and job != ray.NO_JOB
            ),
            None,
        )
        for look in sampler.looks.values():
            self._since(look.state, look.member)
        return taken.states

    def _since(self, state: RankState, member: Member) -> None:
        """Progress since the last look instead of that within this one."""
        now, before = progress.look(self.host, state.pid, member), self._counters.get(state.pid)
        frames = zlib.crc32(repr(stacks.python_frames(state.threads)).encode())
        if now is not None and before is not None:
            moved = progress.between(before, now)
            within = state.progress
            if within is not None:
                moved.gpu_memory_bytes, moved.gpu_utilisation = within.gpu_memory_bytes, within.gpu_utilisation
                moved.woken = within.woken
            moved.frames_changed = bool(within and within.frames_changed) or (
                frames != self._frames.get(state.pid) and bool(state.threads)
            )
            state.progress = moved
        if now is not None:
            self._counters[state.pid] = now
            self._frames[state.pid] = frames

    def _ended(self, states: List[RankState]) -> List[RankState]:
        """The last states of those that are gone since the last look, for as long as others are there."""
        here, alive = {state.pid: state for state in states}, {}
        for pid, state in self._last.items():
            if pid in here:
                continue
            now = read_stat(self.host, pid)
            if now is not None and now.state not in ("Z", "X"):
                alive[pid] = state  # not found this time, or it has ended in between: the next look will tell
            elif (
                state.below not in here
                and state.role in _REMEMBERED
                and (self._seen.get(pid, 0) > 1 or _says_who_it_is(state))
            ):
                state.state, state.threads, state.sockets, state.progress = "gone", [], [], None
                state.stack_error = "it has ended"
                self._gone[pid] = state
        self._last = {**alive, **here}
        self._seen = {pid: self._seen.get(pid, 0) + (pid in here) for pid in self._last}
        return list(self._gone.values())

    def _oom_kills(self) -> Optional[int]:
        """Processes that the kernel has ended for want of memory since it started (/proc/vmstat); None where it does not say."""
        try:
            fields = dict(line.split() for line in self.host.read("/proc/vmstat").splitlines())
        except (HostError, ValueError):
            return None
        return int(fields["oom_kill"]) if "oom_kill" in fields else None

    def _near(self, pid: int) -> bool:
        """Whether a process is on this node: a machine whose network namespace this is, or a container on it. Another network
        namespace with the same process ids is another node that shares the machine. What has ended does not say any more."""
        try:
            return self.host.link("/proc/%d/ns/net" % pid) == self.host.link("/proc/self/ns/net") or self.host.link(
                "/proc/%d/ns/pid" % pid
            ) != self.host.link("/proc/self/ns/pid")
        except HostError:
            proc = read_stat(self.host, pid)
            return proc is not None and proc.state not in ("Z", "X")

    def _pids(self, machine: Machine, request: Mapping[str, Any]) -> Tuple[List[int], Set[int]]:
        """(pids that lead to the engine, all processes below them)."""
        tops = [request["guard"]] if request.get("guard") else list(request.get("pids") or ())
        if tops:
            below = [proc for top in tops for proc in machine.below(top) if proc.pid != request.get("guard")]
            chosen = [
                proc.pid
                for proc in below
                if roles.is_launcher(proc) or (roles.is_python(proc) and not roles.is_helper(proc))
            ]
            return chosen, {proc.pid for proc in below}
        return self._search(machine, request), set()

    def _others(self, machine: Machine, request: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """What was started or attached to, where nothing of it is of an engine."""
        tops = [request["guard"]] if request.get("guard") else list(request["pids"])
        chosen = {proc.pid: proc for top in tops for proc in machine.below(top)}
        chosen.update({top: machine.processes[top] for top in tops if top in machine.processes})
        return self._beside.look(proc for pid, proc in chosen.items() if pid != request.get("guard"))

    def _becoming_workers(self, machine: Machine, request: Mapping[str, Any]) -> List[Proc]:
        """Ray's processes of the job that have no task yet: they import the engine before they take the name of its workers."""
        jobs = (request.get("job"), ray.NO_JOB)
        procs = [machine.get(pid) for pid in machine.processes] if request.get("job") else []
        idle = [proc for proc in procs if proc is not None and _IDLE.search(proc.command) and self._near(proc.pid)]
        return [proc for proc in idle if ray.job_of(self.host, proc) in jobs]

    def _search(self, machine: Machine, request: Mapping[str, Any]) -> List[int]:
        """Without a pid: who meets at the same place, who is of the same Ray job, else every engine of several nodes."""
        mine = set(_ancestors(machine, os.getpid()))
        pythons = [
            proc
            for proc in machine.pythons()
            if proc.pid not in mine and not proc.command.startswith(_TASK) and self._near(proc.pid)
        ]
        if request.get("ray"):
            return [proc.pid for proc in pythons if self._of_job(proc, request.get("job"))]
        meeting = tuple(request.get("meeting") or ())
        if meeting:
            exact = [proc.pid for proc in pythons if rendezvous(proc) == meeting]
            if exact or self._met:  # once its ranks were here, no other engine is taken for it
                self._met = True
                return exact
        return [proc.pid for proc in pythons if _spans_nodes(proc)]

    def _of_job(self, proc: Proc, job: Optional[str]) -> bool:
        role = roles.titled_role(proc)
        if role in ("api-server", "engine-core"):
            named = ray.job_of(self.host, proc)
            if named is None:  # it has not connected to Ray yet
                return job is None and option(proc.argv, "--distributed-executor-backend") == "ray"
            return job in (None, named)
        if role != "ray-worker":
            return False
        named = ray.job_of(self.host, proc)
        known = "RayWorkerProc" in proc.command or "RayWorkerWrapper" in proc.command
        return named == job if job is not None and named not in (None, ray.NO_JOB) else known


def _says_who_it_is(state: RankState) -> bool:
    """By its environment, title or log. What shows its parent's command line may just be about to become another program: a compiler, a look
    at the CPU. Workers without a title live through several looks."""
    return bool(state.title.startswith("VLLM::") or state.log_tail or state.rank_source not in ("", "order"))


def _bare(state: RankState) -> Dict[str, Any]:
    return {
        **state.as_dict(),
        "threads": [],
        "sockets": [],
        "progress": None,
        "log_tail": [],
        "settings": {},
        "kernel_stack": [],
    }


def _ancestors(machine: Machine, pid: int) -> Iterable[int]:
    while pid in machine.processes:
        yield pid
        pid = machine.processes[pid].parent


def _spans_nodes(proc: Proc) -> bool:
    """An engine, or a rank of a job, that was started for several nodes."""
    if roles.titled_role(proc) in ("api-server", "headless"):
        return "--headless" in proc.command or (option(proc.argv, "--nnodes", "-n") or "1") != "1"
    return rendezvous(proc) is not None


def tail(path: str) -> List[str]:
    """The last lines of a regular file, masked; empty where it cannot be read."""
    try:
        if not os.path.isfile(path):
            return []
        with open(path, "rb") as file:
            file.seek(0, 2)
            start = max(file.tell() - TAIL_BYTES, 0)
            file.seek(start)
            text = redact.text(file.read(TAIL_BYTES).decode("utf-8", "backslashreplace"))
    except OSError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return [line for line in lines[1 if start else 0 :] if line.strip()][-LINES:]


def number_by_log(state: RankState) -> None:
    """The rank of a worker that its own lines tell."""
    if state.role in ("worker", "ray-worker"):
        ranks.from_log(state, state.log_tail)
