"""Looks at every process of an engine, in parallel and within a budget: family in, rank states out.

Only reads. Order: counters, kernel facts and sockets; Python stacks of all; native stacks of a few, the odd ones first, since resolving the
symbols of a large library costs more CPU than all the rest; at the end of the window counters and stacks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from ncdiag.host import Host, HostError
from ncdiag.model import Progress, RankState
from ncdiag.processes import gpu, kernel, logtail, progress, ranks, sockets, stacks
from ncdiag.processes.family import Family, Member, find
from ncdiag.processes.settings import node_of, settings_of

T = TypeVar("T")
WINDOW_S = 3.0
BUDGET_S = 30.0
NATIVE_OVER_S = 1.0
"""How far native reads may go beyond the window; on a machine that is overloaded Python frames have to do."""


@dataclass(frozen=True)
class Options:
    """How to look."""

    window_s: float = WINDOW_S
    native: str = "auto"
    """`auto`: of the odd ones and of two of every group of equal stacks; `all`; `none`."""
    nonblocking: bool = False
    """Never pause a process."""
    variables: bool = False
    """Keep the local variables of `stacks.LOCALS`."""
    budget_s: float = BUDGET_S
    """Seconds after which no further stack is read."""


@dataclass
class Look:
    """All that was read of one process on the way."""

    member: Member
    state: RankState
    kernel: kernel.KernelFacts = field(default_factory=kernel.KernelFacts)
    counters: progress.Counters | None = None
    first: stacks.Stacks = field(default_factory=stacks.Stacks)
    gpu_bytes: int = 0
    done: bool = False
    """Whether its stack was read twice already."""


@dataclass
class Sample:
    """Everything about one engine on this machine at one time."""

    states: list[RankState]
    logs: dict[str, logtail.Log] = field(default_factory=dict)
    """Log files that its processes write to, by name."""
    notes: list[str] = field(default_factory=list)
    """What could not be read of the machine as a whole."""


class Sampler:
    """One dump. `looks` is complete with sockets and kernel facts after `begin`, with stacks and progress after `finish`."""

    def __init__(self, host: Host, pids: Iterable[int], options: Options, step: Callable[[str, str], None] = lambda node, what: None) -> None:
        self._host = host
        self._options = options
        self._step = step
        self._workers = min(4, os.cpu_count() or 2)
        self.family: Family = find(host, pids)
        self.looks: dict[int, Look] = {}
        self.notes: list[str] = []
        self.logs: dict[str, logtail.Log] = {}
        self._started = time.monotonic()

    @property
    def states(self) -> list[RankState]:
        return [look.state for look in self.looks.values()]

    def begin(self) -> None:
        """First counters, kernel facts, sockets, settings and logs of every process."""
        uptime = float(self._host.read("/proc/uptime").split()[0])
        tables, found = sockets.Tables(self._host), gpu.look()
        for pid, member in self.family.items():
            proc = member.proc
            state = RankState(pid, node_of(self._host, proc), member.role, title=proc.command[:500], parent=proc.parent,
                              age_s=round(max(uptime - proc.start_ticks / progress.TICKS, 0.0), 1), settings=settings_of(proc.environ),
                              children=sorted({helper.comm for helper in member.helpers}))
            look = self.looks[pid] = Look(member, state)
            look.counters = progress.look(self._host, pid, [helper.pid for helper in member.helpers])
            look.kernel = kernel.look(self._host, pid)
            state.asleep_s = look.kernel.asleep_s
            self._sockets(look, tables)
            look.gpu_bytes = self._gpu(look, found)
        self._read_logs()
        self._number()

    def _sockets(self, look: Look, tables: sockets.Tables) -> None:
        try:
            look.state.netns, look.state.sockets = sockets.read(self._host, look.state.pid, tables)
        except HostError as error:
            if look.kernel.state not in ("gone", "Z"):
                look.state.notes.append(f"its sockets could not be read ({error.reason}); run ncdiag as root or as the user of the process")

    def _gpu(self, look: Look, found: gpu.GpuLook) -> int:
        held = gpu.of_process(found, look.state.pid)
        if held:
            look.state.gpu = held
        return int(held.get("memory_bytes") or 0)

    def _read_logs(self) -> None:
        relatives = {pid for look in self.looks.values() for pid in (look.state.pid, look.state.parent or 0)}
        relatives |= {helper.pid for look in self.looks.values() for helper in look.member.helpers}
        relatives |= self._siblings()
        found = {pid: logtail.find(self._host, pid, relatives) for pid, look in self.looks.items() if look.kernel.state not in ("gone", "Z")}
        writers: dict[str, int] = {}
        for log in found.values():
            writers[log.source] = writers.get(log.source, 0) + 1
        for pid, log in found.items():
            look = self.looks[pid]
            if log.error:
                look.state.notes.append(log.error)
                continue
            self.logs[log.source] = log
            look.state.log_source = log.source
            look.state.log_tail = logtail.own_lines(log, (pid, look.kernel.ns_pid), writers[log.source] > 1)
            if look.member.role in ("worker", "ray-worker"):
                alone = writers[log.source] == 1
                ranks.from_log(look.state, [*log.head, *log.tail] if alone else logtail.own_lines(
                    logtail.Log(log.source, tail=log.head + log.tail), (pid, look.kernel.ns_pid), True))

    def _siblings(self) -> set[int]:
        """Processes of the same sessions that are no members: the `tee` of a shell pipeline."""
        sessions = {member.proc.session for member in self.family.values()}
        found = set()
        for name in self._host.names("/proc"):
            if name.isdigit() and int(name) not in self.family:
                try:
                    fields = self._host.read_bytes(f"/proc/{name}/stat").decode("utf-8", "replace").rpartition(") ")[2].split()
                except HostError:
                    continue
                if int(fields[3]) in sessions:
                    found.add(int(name))
        return found

    def _number(self) -> None:
        commands = {pid: look.member.proc.argv for pid, look in self.looks.items()}
        for look in self.looks.values():
            if look.member.role == "script":
                ranks.from_environment(look.state, look.member.proc.environ)
            elif look.member.role == "worker" and look.state.rank is None:
                ranks.from_title(look.state, self._serve_command(look))
        ranks.by_order({pid: look.state for pid, look in self.looks.items()}, self.family,
                       {pid: self._serve_command(self.looks[pid]) for pid in commands})

    def _serve_command(self, look: Look) -> list[str]:
        """The command line of the server that `look` belongs to."""
        member: Member | None = look.member
        while member is not None:
            if member.role in ("api-server", "headless"):
                return member.proc.argv
            member = self.family.get(member.proc.parent)
        return []

    def finish(self) -> Sample:
        """Stacks, and at the end of the window counters and stacks again."""
        end = self._started + self._options.window_s
        self._each(self.looks.values(), self._read_first)
        if self._options.native != "none":
            self._each(self._chosen(), self._read_native)
        time.sleep(max(end - time.monotonic(), 0.0))
        found = gpu.look()
        for look in self.looks.values():
            self._measure(look, found)
        self._each([look for look in self.looks.values() if not look.done], self._read_second)
        for look in self.looks.values():
            self._conclude(look)
        return Sample(self.states, self.logs, self.notes)

    def _each(self, looks: Iterable[Look], work: Callable[[Look], None]) -> None:
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(work, looks))

    def _late(self, look: Look) -> bool:
        return time.monotonic() - self._started > self._options.budget_s

    def _read_first(self, look: Look) -> None:
        state = look.kernel.state
        if state in ("gone", "Z", "X"):
            look.first = stacks.Stacks(error="a zombie has no stack: it ended, its parent has not asked how" if state == "Z" else "it has ended")
        elif self._late(look):
            look.first = stacks.Stacks(error=f"not read: the budget of {self._options.budget_s:g} s was used up; raise --budget")
        else:
            look.first = stacks.read(look.state.pid, nonblocking=self._options.nonblocking or not look.kernel.pausable,
                                     variables=self._options.variables)
        self._step(look.state.node, f"stack of {look.state.pid}")

    def _chosen(self) -> list[Look]:
        """Whose native frames to read: of every group of equal Python stacks the first and the last rank, small groups first."""
        groups: dict[object, list[Look]] = {}
        for look in self.looks.values():
            if look.first.threads and look.kernel.pausable and not self._options.nonblocking:
                groups.setdefault(stacks.python_frames(look.first.threads), []).append(look)
        if self._options.native == "all":
            return [look for group in groups.values() for look in group]
        chosen: list[Look] = []
        for group in sorted(groups.values(), key=len):
            group.sort(key=lambda look: (look.state.rank is None, look.state.rank or 0, look.state.pid))
            chosen.extend([group[0], group[-1]] if len(group) > 1 else group)
        limit = max(2, (sum(len(group) for group in groups.values()) + 1) // 2)
        for look in chosen[limit:]:
            look.first.error = f"{stacks.SPARED} to save CPU; --native all reads them"
        for group in groups.values():
            for look in group[1:-1]:
                look.first.error = f"{stacks.SPARED}: process {group[0].state.pid} has the same Python stack; --native all reads them"
        return chosen[:limit]

    def _read_native(self, look: Look) -> None:
        if self._late(look):
            return
        again = stacks.read(look.state.pid, native=True, variables=self._options.variables, timeout_s=self._native_limit())
        if again.gone or not again.threads:
            look.first.error = again.error
            return
        self._compare(look, again)
        look.first, look.done = again, True

    def _native_limit(self) -> float:
        """Seconds that one read of native frames may take: a little over the window, or, where all were asked for, the budget."""
        end = self._options.budget_s if self._options.native == "all" else self._options.window_s + NATIVE_OVER_S
        return max(self._started + end - time.monotonic(), 0.2)

    def _read_second(self, look: Look) -> None:
        if not look.first.threads or self._late(look):
            return
        again = stacks.read(look.state.pid, nonblocking=self._options.nonblocking or not kernel.look(self._host, look.state.pid).pausable)
        if again.threads:
            self._compare(look, again)
            again.error, again.variables = look.first.error, look.first.variables
            look.first = again

    @staticmethod
    def _compare(look: Look, again: stacks.Stacks) -> None:
        changed = stacks.python_frames(look.first.threads) != stacks.python_frames(again.threads)
        look.state.progress = look.state.progress or Progress(0.0)
        look.state.progress.frames_changed = changed

    def _measure(self, look: Look, found: gpu.GpuLook) -> None:
        """Progress over the window."""
        second = progress.look(self._host, look.state.pid, [helper.pid for helper in look.member.helpers])
        if look.counters is None or second is None:
            return
        changed = look.state.progress.frames_changed if look.state.progress else None
        look.state.progress = progress.between(look.counters, second)
        look.state.progress.frames_changed = changed
        before = look.gpu_bytes
        if self._gpu(look, found):
            look.state.progress.gpu_memory_bytes = look.state.gpu["memory_bytes"] - before
            look.state.progress.gpu_utilisation = look.state.gpu["utilisation_percent"]
        if not second.io_known:
            look.state.notes.append(f"/proc/{look.state.pid}/io is not readable; run ncdiag as root or as the user of the process")

    def _conclude(self, look: Look) -> None:
        state, facts = look.state, kernel.look(self._host, look.state.pid)
        if facts.state == "gone":
            state.state, state.stack_error = "gone", "it ended during the dump"
            return
        state.state, state.wchan, state.syscall, state.kernel_stack = facts.state, facts.wchan, facts.syscall, facts.stack
        state.tracer, state.frozen, state.ns_pid = facts.tracer, facts.frozen, facts.ns_pid
        state.threads, state.stack_error, state.variables = look.first.threads, look.first.error, look.first.variables
        for thread in state.threads:
            thread["state"] = facts.threads.get(thread["tid"], "")
        if state.rank is None and state.variables:
            ranks.from_variables(state)
        if state.role == "launcher" and _takes_part(state):
            state.role = "script"


def _takes_part(state: RankState) -> bool:
    """A program that started others and is in torch.distributed itself is a rank, no mere launcher."""
    return any("torch/distributed/" in frame.file and "/elastic/" not in frame.file and not frame.file.endswith(("/run.py", "/launch.py"))
               for thread in state.threads if thread["main"] for frame in thread["frames"])


def sample(host: Host, pids: Iterable[int], options: Options | None = None) -> Sample:
    """One dump of the whole engine. Raises FamilyError when a pid is no process here."""
    sampler = Sampler(host, pids, options or Options())
    sampler.begin()
    return sampler.finish()
