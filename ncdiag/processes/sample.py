"""Looks at every process of an engine, in parallel and within a budget: family in, rank states out.

Only reads. Order: counters, kernel facts and sockets; Python stacks of all; native stacks of a few, the odd ones first, since resolving the
symbols of a large library costs more CPU than all the rest; at the end of the window counters and stacks again.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ncdiag.host import Host, HostError
from ncdiag.model import Progress, RankState
from ncdiag.processes import (
    calls,
    gpu,
    helpers,
    kernel,
    locks,
    logs,
    logtail,
    native,
    progress,
    pulse,
    ranks,
    sockets,
    stacks,
    standing,
    unwoken,
    zombies,
)
from ncdiag.processes.family import Family, find
from ncdiag.processes.look import NATIVE_OVER_S, Look, Options, Sample
from ncdiag.processes.settings import node_of, settings_of


class Sampler:
    """One dump. `looks` is complete with sockets and kernel facts after `begin`, with stacks and progress after `finish`."""

    def __init__(
        self,
        host: Host,
        pids: Iterable[int],
        options: Options,
        step: Callable[[str, str], None] = lambda node, what: None,
    ) -> None:
        self._host = host
        self._options = options
        self._step = step
        self._workers = min(4, os.cpu_count() or 2)
        self.family: Family = find(host, pids)
        self.looks: dict[int, Look] = {}
        self.notes: list[str] = []
        self.logs: dict[str, logtail.Log] = {}
        self._started = time.monotonic()
        self._tables = sockets.Tables(host)

    @property
    def states(self) -> list[RankState]:
        return [look.state for look in self.looks.values()]

    def begin(self) -> None:
        """First counters, kernel facts, sockets, settings and logs of every process."""
        uptime = float(self._host.read("/proc/uptime").split()[0])
        tables, found = self._tables, gpu.look()
        for pid, member in self.family.items():
            proc = member.proc
            state = RankState(
                pid,
                node_of(self._host, proc),
                member.role,
                title=proc.command[:500],
                parent=proc.parent,
                below=member.below,
                age_s=round(max(uptime - proc.start_ticks / progress.TICKS, 0.0), 1),
                settings=settings_of(proc.environ),
                children=sorted({helper.comm for helper in member.helpers}),
                halted_children=[f"{helper.pid} ({helper.comm})" for helper in member.helpers if helper.state == "T"],
            )
            look = self.looks[pid] = Look(member, state)
            look.counters = progress.look(self._host, pid, member)
            look.kernel = kernel.look(self._host, pid)
            look.at, look.turns, state.call = (
                time.monotonic(),
                pulse.turns(self._host, pid),
                calls.read(self._host, pid),
            )
            look.still_s = pulse.still_s(self._host, pid, look.turns.keys() & {pid})
            self._sockets(look, tables)
            look.gpu_bytes = self._gpu(look, found)
        self.logs = logs.read(self._host, self.looks)
        ranks.number(self.looks)

    def _sockets(self, look: Look, tables: sockets.Tables) -> None:
        try:
            look.state.netns, look.state.sockets = sockets.read(self._host, look.state.pid, tables)
            tables.traffic(look.state.pid)  # as it is now
        except HostError as error:
            if look.kernel.state not in ("gone", "Z"):
                look.state.notes.append(
                    f"its sockets could not be read ({error.reason}); run ncdiag as root or as the user of the process"
                )

    def _gpu(self, look: Look, found: gpu.GpuLook) -> int:
        held = gpu.of_process(found, look.state.pid)
        if held:
            look.state.gpu = held
        return int(held.get("memory_bytes") or 0)

    def finish(self) -> Sample:
        """Stacks, and at the end of the window counters and stacks again."""
        end = self._started + self._options.window_s
        self._each(self.looks.values(), self._read_first)
        self._each(native.chosen(self._host, self.looks, self._options), self._read_native)
        for look in self.looks.values():
            look.pulse = pulse.take(self._host, look.state.pid)
            if look.paused:
                look.at, look.turns = time.monotonic(), pulse.turns(self._host, look.state.pid)
        time.sleep(max(end - time.monotonic(), 0.0))
        found, tables = gpu.look(), sockets.Tables(self._host)
        for look in self.looks.values():
            standing.tell_still(self._host, look)
            self._measure(look, found)
            sockets.compare(look.state.pid, look.state.sockets, self._tables, tables)
        self._each([look for look in self.looks.values() if not look.done], self._read_second)
        for look in self.looks.values():
            self._conclude(look, tables)
        self._locks()
        return Sample(self.states, self.logs, self.notes)

    def _locks(self) -> None:
        """Who holds the file lock that a process waits for; of a lock file that it polls for where only one is locked, by its own kin or at all."""
        for pid, lock in locks.waited_for(self._host, self.looks).items():
            self.looks[pid].state.lock = lock
        polling = [look.state for look in self.looks.values() if _polls_lock_file(look.state)]
        held = locks.locked_files(self._host) if polling else []
        for state in polling:
            others = [lock for lock in held if lock["holder"] != state.pid]
            kin = [lock for lock in others if lock["holder"] in self.looks]
            if len(kin or others) == 1:
                state.lock = (kin or others)[0]

    def _each(self, looks: Iterable[Look], work: Callable[[Look], None]) -> None:
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(work, looks))

    def _late(self, look: Look) -> bool:
        return time.monotonic() - self._started > self._options.budget_s

    def _read_first(self, look: Look) -> None:
        state = look.kernel.state
        if state in ("gone", "Z", "X"):
            look.first = stacks.Stacks(
                error="a zombie has no stack: it ended, its parent has not asked how"
                if state == "Z"
                else "it has ended"
            )
        elif self._late(look):
            look.first = stacks.Stacks(
                error=f"not read: the budget of {self._options.budget_s:g} s was used up; raise --budget"
            )
        else:
            look.first = self._read(look, self._options.variables)
        self._step(look.state.node, f"stack of {look.state.pid}")

    def _read(self, look: Look, variables: bool = False) -> stacks.Stacks:
        self._may_wake(look)
        found = unwoken.read(self._host, look.state.pid, nonblocking=self._options.nonblocking, variables=variables)
        look.paused = look.paused or found.paused
        return found

    def _may_wake(self, look: Look) -> None:
        """Before its first pause: a thread that ran by itself since the beginning has not been still for so long; those in code of the program are known
        by now, where its stacks were read without one."""
        if not look.paused:
            rested = pulse.slept(look.turns, pulse.turns(self._host, look.state.pid))
            more = pulse.still_s(
                self._host, look.state.pid, rested & (standing.own_threads(look) - look.still_s.keys())
            )
            look.still_s = {tid: seconds for tid, seconds in {**more, **look.still_s}.items() if tid in rested}

    def _read_native(self, look: Look) -> None:
        if self._late(look):
            return
        self._may_wake(look)
        look.paused = True
        again = stacks.read(
            look.state.pid, native=True, variables=self._options.variables, timeout_s=self._native_limit()
        )
        if again.gone or not again.threads:
            look.first.error = again.error
            return
        self._compare(look, again)
        look.first, look.done = again, True

    def _native_limit(self) -> float:
        """Seconds that one read of native frames may take: a little over the window, or, where all were asked for, the budget; enough for one in any case."""
        end = self._options.budget_s if self._options.native == "all" else self._options.window_s + NATIVE_OVER_S
        return max(self._started + end - time.monotonic(), NATIVE_OVER_S)

    def _read_second(self, look: Look) -> None:
        if not look.first.threads or self._late(look):
            return
        again = self._read(look)
        if again.threads:
            self._compare(look, again)
            again.error, again.variables = look.first.error, look.first.variables
            look.first = again

    @staticmethod
    def _compare(look: Look, again: stacks.Stacks) -> None:
        every = look.member.role == "ray-worker"  # its main thread only waits for calls; those run in others
        changed = _telling(look.first.threads, every) != _telling(again.threads, every)
        look.state.progress = look.state.progress or Progress(0.0)
        look.state.progress.frames_changed = changed

    def _measure(self, look: Look, found: gpu.GpuLook) -> None:
        """Progress over the window."""
        second = progress.look(self._host, look.state.pid, look.member)
        if look.counters is None or second is None:
            return
        changed = look.state.progress.frames_changed if look.state.progress else None
        look.state.progress = progress.between(look.counters, second)
        look.state.progress.frames_changed = changed
        look.state.progress.woken = pulse.woken(look.pulse, pulse.take(self._host, look.state.pid))
        before = look.gpu_bytes
        if self._gpu(look, found):
            look.state.progress.gpu_memory_bytes = look.state.gpu["memory_bytes"] - before
            look.state.progress.gpu_utilisation = look.state.gpu["utilisation_percent"]
        if not second.io_known:
            look.state.notes.append(
                f"/proc/{look.state.pid}/io is not readable; run ncdiag as root or as the user of the process"
            )

    def _conclude(self, look: Look, tables: sockets.Tables) -> None:
        state, facts = look.state, kernel.look(self._host, look.state.pid)
        if facts.state == "gone":
            state.state, state.stack_error, state.call = "gone", "it ended during the dump", {}
            return
        if facts.state == "Z":
            state.ended = zombies.how_it_ended(self._host, state.pid)
        state.state, state.wchan, state.syscall, state.kernel_stack = (
            facts.state,
            facts.wchan,
            facts.syscall,
            facts.stack,
        )
        standing.tell_call(self._host, look, tables)
        standing.tell_heard(state)
        state.tracer = None if facts.sampled else facts.tracer
        state.frozen, state.ns_pid = facts.frozen, facts.ns_pid
        state.threads, state.stack_error, state.variables = look.first.threads, look.first.error, look.first.variables
        for thread in state.threads:
            thread["state"] = facts.threads.get(thread["tid"], "")
            if not thread["main"] and thread["tid"] is not None:
                thread["call"] = calls.read(self._host, state.pid, thread["tid"])
                standing.tell_asks(self._host, state.pid, thread["call"], thread["call"].pop("descriptors", ()))
        if state.progress is not None and not helpers.waits(state):
            state.progress.children_bytes = 0
        state.child_places = [] if self._late(look) else helpers.places(self._host, look)
        if state.rank is None and state.variables:
            ranks.from_variables(state)
        if state.rank is None and not self._options.variables and _is_in_a_group(state):
            state.notes.append(
                "its rank stands in no environment, title or log; --locals reads it, with world size and store address"
            )
        if state.role == "launcher" and _is_in_a_group(state):
            state.role = "script"


def _polls_lock_file(state: RankState) -> bool:
    """Whether its main thread is in the filelock package."""
    frames = [frame for thread in state.threads if thread["main"] for frame in thread["frames"]]
    return any(frame.name.endswith("acquire") and "filelock/" in frame.file for frame in frames)


def _is_in_a_group(state: RankState) -> bool:
    """Whether its main thread is in torch.distributed: then it is a rank, also where it started others."""
    return any(
        "torch/distributed/" in frame.file and not re.search(r"/elastic/|/launcher/|/run\.py$|/launch\.py$", frame.file)
        for thread in state.threads
        if thread["main"]
        for frame in thread["frames"]
    )


def _telling(threads: list[dict[str, Any]], every: bool) -> tuple[Any, ...]:
    """The frames by which progress is told: of the main thread, since monitors and writers of dumps beside it move in a hang too."""
    return stacks.python_frames(threads if every else [thread for thread in threads if thread["main"]] or threads)


def sample(host: Host, pids: Iterable[int], options: Options | None = None) -> Sample:
    """One dump of the whole engine. Raises FamilyError when a pid is no process here."""
    sampler = Sampler(host, pids, options or Options())
    sampler.begin()
    return sampler.finish()
