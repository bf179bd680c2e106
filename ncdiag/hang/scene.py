"""The scene: every process with its stage and state, and what they say together about the group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Sequence, Set

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.model import Cause, Frame, Progress, RankState
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import DISK, DNS, GPU, HUB, LOCK, ON_OTHERS, PEERS, PIPE, SLEEP, SOCKET, STORE, TYPED, WORKERS
from ncdiag.stages.waits import name_lookup, wait_of_kernel

MANAGERS = ("api-server", "engine-core", "headless", "launcher")
"""Roles that only wait for their workers; they are no ranks of the group."""
_WORKERS = ("worker", "ray-worker", "script")


@dataclass
class View:
    """One process as the inference sees it."""

    state: RankState
    match: stages.StageMatch
    waiting: Optional[str]
    """What it waits for: from the stack, else from the kernel."""
    verdict: str
    """One of `verdict.STATES`."""
    rank: Optional[int] = None
    """Its number: what the process says, or the only one left for a process that ended."""
    turns: bool = False
    """Whether it woke, as everybody did that waits for it: together they get on."""
    helper: Optional[View] = None
    """The program that it started and waits for, where that one moves."""

    @property
    def name(self) -> str:
        who = f"rank {self.rank}" if self.rank is not None else self.state.role
        if who == "unknown" and self.state.title:
            who = self.state.title.split()[0].rsplit("/", 1)[-1]
        return f"{who} ({self.state.node}, pid {self.state.pid})"

    @property
    def stage(self) -> str:
        return self.match.stage

    @property
    def call(self) -> Mapping[str, Any]:
        """The system call of the thread that it is about, as in `RankState.call`."""
        return _call(self.state, self.match)

    @property
    def stack(self) -> List[Frame]:
        """The frames of the thread that it is about, innermost first."""
        threads = self.state.threads
        about = next(
            (one for one in threads if self.match.thread is not None and one.get("tid") == self.match.thread), None
        )
        thread = about or stages.main_thread(threads)
        return stages.frames_of(thread) if thread is not None else []

    @property
    def home(self) -> str:
        """Node and network namespace: addresses compare only within one."""
        return f"{self.state.node} {self.state.netns}".strip()

    @property
    def witness(self) -> bool:
        """It waits for others, so it is not the one that holds them up."""
        return self.verdict == "waiting"


@dataclass
class Scene:
    """All that is known at one time."""

    views: List[View]
    world_size: Optional[int]
    ras: Sequence[Mapping[str, Any]] = ()
    flight: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    logs: Sequence[Cause] = ()

    @property
    def ranks(self) -> List[View]:
        """The processes that are ranks of the group; a child that only inherited its parent's number is none."""
        members = [view for view in self.views if view.state.role not in MANAGERS and not _program_of_a_rank(view)]
        numbered = {(view.state.node, view.state.pid): view.rank for view in members if view.rank is not None}
        own = [
            view
            for view in members
            if view.rank is not None and numbered.get((view.state.node, view.state.parent or 0)) != view.rank
        ]
        loose = [
            view for view in members if view.rank is None and view.state.role in _WORKERS and view.waiting != WORKERS
        ]
        return own + [view for view in loose if view.state.role != "script" or not own or view.verdict == "dead"]

    @property
    def managers(self) -> List[View]:
        return [view for view in self.views if view.state.role in MANAGERS]

    @property
    def homes(self) -> Set[str]:
        return {view.home for view in self.views}

    @property
    def absent(self) -> List[int]:
        """Numbers of the ranks that no process seen here has; empty where one of them has no number yet, or the world size
        is unknown."""
        seen = {view.rank for view in self.ranks}
        if not self.world_size or None in seen or not seen:
            return []
        return [number for number in range(self.world_size) if number not in seen]


def _program_of_a_rank(view: View) -> bool:
    """What a rank ran, and what is done: a compiler's test, a look at the CPU."""
    return view.verdict == "dead" and view.state.below is not None


def look(state: RankState) -> View:
    """Stage and state of one process."""
    match = stages.stage_of_threads(state.threads, state.role)
    waiting = (PIPE if match.waiting == DISK and any(word in state.wchan for word in _FIFO) else match.waiting) or (
        _wait_of_call(state) if match.thread is None else wait_of_kernel("", _call(state, match).get("name", ""))
    )
    if _asks(state, match):
        waiting = DNS
    if match.stage == "unknown":
        logged = stages.stage_of_log(state.log_tail)
        if logged:
            match = stages.StageMatch(logged, None, None, "its last log line")
    return View(state, match, waiting, what_state(state, match, waiting), state.rank)


def _asks(state: RankState, match: stages.StageMatch) -> bool:
    """Whether it waits for a name server, by the call that it is in; where its main thread waits for anything at all, also one of its executor. What
    another thread asks for, as one that reports usage, holds nobody up."""
    if _call(state, match).get("asks"):
        return True
    works = [stages.frames_of(thread) for thread in state.threads] if match.waiting is None else []
    return any(name_lookup(stack) and first(_EXECUTOR, stack) for stack in works)


_EXECUTOR = (Rule("program", None, ("_worker@concurrent/futures/thread.py",)),)
_FIFO = ("wait_for_partner", "fifo_open")
"""To open a FIFO waits for somebody who opens its other end."""


def _call(state: RankState, match: stages.StageMatch) -> Mapping[str, Any]:
    if match.thread is None:
        return state.call
    return next((thread.get("call") or {} for thread in state.threads if thread.get("tid") == match.thread), {})


def _wait_of_call(state: RankState) -> Optional[str]:
    """What the kernel says that it waits for."""
    source = state.call.get("source") or {}
    if source.get("terminal"):
        return TYPED
    if "writers" in source or "readers" in (state.call.get("sink") or {}):
        return PIPE
    if state.call.get("sleeps"):
        return SLEEP
    if _hears_store(state):
        return STORE
    if state.call.get("hears") or state.call.get("listens"):
        return SOCKET
    return wait_of_kernel(state.wchan, state.call.get("name") or state.syscall, state.kernel_stack)


def _hears_store(state: RankState) -> bool:
    """Whether it waits for an answer at its connection to the store of the group."""
    port, remotes = state.settings.get("MASTER_PORT"), [remote for _, remote in state.call.get("hears", ())]
    return bool(port and remotes) and all(remote.rpartition(":")[2] == port for remote in remotes)


def what_state(state: RankState, match: stages.StageMatch, waiting: Optional[str]) -> str:
    """One of `verdict.STATES`, by itself: what others do is not asked."""
    letter, progress = state.state[:1], state.progress
    if state.state == "gone" or letter in ("Z", "X"):
        return "dead"
    if letter == "T" or state.frozen or (letter == "t" and state.tracer):
        return "stopped"
    if match.stage == "ready" or waiting in ON_OTHERS:
        return "progressing" if progress is not None and _takes_turns(waiting, letter, progress) else "waiting"
    if progress is None or (waiting in (DISK, HUB) and not progress.io_known):
        return "unknown"
    if letter == "R" and waiting is None and activity.cpu_share(progress) >= activity.WOKEN:
        return "progressing"  # it would run more if others let it
    if waiting == PIPE and (progress.own_rchar > 0 or (_call(state, match).get("sink") and progress.woken)):
        return "progressing"  # a line now and then; or its reader took something, which is all that wakes a writer
    if _moves(progress) or (progress.frames_changed and (waiting not in _FOR_GOOD or match.waiting is None)):
        return "progressing"
    return "stuck" if match.stage != "unknown" or waiting is not None else "unknown"


def _takes_turns(waiting: Optional[str], letter: str, progress: Progress) -> bool:
    """In a collective at this instant, but woken again and again: its stack changes while it uses the CPU, or it sleeps and
    yet uses more than one that waits for good. What spins (NCCL on the GPU) is no sign of either."""
    share = activity.cpu_share(progress)
    if waiting not in (PEERS, GPU) or share < activity.WOKEN:
        return False
    return bool(progress.frames_changed) or (waiting == PEERS and letter == "S" and share < activity.SPINNING)


_FOR_GOOD = (DNS, LOCK, PIPE, TYPED, DISK)
"""Waits in which a stack that changes means a retry, not work."""


def _moves(progress: Optional[Progress]) -> bool:
    return activity.busy(progress) or activity.moves_data(progress)
