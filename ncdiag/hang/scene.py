"""The scene: every process with its stage and state, and what they say together about the group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.model import Cause, Frame, Progress, RankState
from ncdiag.processes.stacks import SPARED, python_frames
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import (
    DISK,
    DNS,
    GPU,
    HUB,
    LOCK,
    ON_OTHERS,
    ORDERS,
    PEERS,
    PIPE,
    QUEUE,
    SOCKET,
    STORE,
    WORKERS,
)
from ncdiag.stages.threads import frames_of, main_thread
from ncdiag.stages.waits import wait_of_kernel

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
        members = [view for view in self.views if view.state.role not in MANAGERS]
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


def look(state: RankState) -> View:
    """Stage and state of one process."""
    match = stages.stage_of_threads(state.threads, state.role)
    waiting = match.waiting or wait_of_kernel(state.wchan, state.syscall, state.kernel_stack)
    if match.stage == "unknown":
        logged = [stage for line in reversed(state.log_tail) if (stage := stages.stage_of_log_line(line))]
        if logged:
            match = stages.StageMatch(logged[0], None, None, "its last log line")
    return View(state, match, waiting, _verdict(state, match, waiting), state.rank)


def _verdict(state: RankState, match: stages.StageMatch, waiting: Optional[str]) -> str:
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


_FOR_GOOD = (DNS, LOCK, PIPE, DISK)
"""Waits in which a stack that changes means a retry, not work."""


def _moves(progress: Optional[Progress]) -> bool:
    return activity.busy(progress) or activity.moves_data(progress)


def make_scene(
    states: Sequence[RankState],
    ras: Optional[Sequence[Mapping[str, Any]]],
    flight: Optional[Mapping[int, Mapping[str, Any]]],
    logs: Optional[Sequence[Cause]],
) -> Scene:
    """Every process looked at, in the order of rank, node and pid."""
    views = [look(state) for state in states]
    _share_stages(views)
    _find_peers(views)
    _find_lock_waiters(views)
    _find_idlers(views)
    _find_parents(views)
    _see_counts_move(views, ras or ())
    sizes: Dict[int, int] = {}
    for view in views:
        if view.state.world_size:
            sizes[view.state.world_size] = sizes.get(view.state.world_size, 0) + 1
    world = max(sizes, key=lambda size: (sizes[size], size)) if sizes else None
    scene = Scene(views, world, ras or (), flight or {}, logs or ())
    _number_the_dead(scene)
    views.sort(key=lambda view: (view.rank is None, view.rank or 0, view.state.node, view.state.pid))
    return scene


def _share_stages(views: Sequence[View]) -> None:
    """Of processes with one Python stack native frames are read of a few; where those agree, the others are there, too."""
    groups: Dict[Any, List[View]] = {}
    for view in views:
        if view.state.threads:
            groups.setdefault((view.state.role, python_frames(view.state.threads)), []).append(view)
    for group in groups.values():
        spared = [
            view for view in group if (view.state.stack_error or "").startswith(SPARED) or view.verdict == "stopped"
        ]
        shown = {(view.stage, view.waiting): view for view in group if view not in spared and _has_native(view)}
        if spared and len(shown) == 1:
            ((_, model),) = shown.items()
            for view in spared:
                view.match, view.waiting = model.match, model.waiting
                view.verdict = _verdict(view.state, view.match, view.waiting)


def _has_native(view: View) -> bool:
    return any(frame.native for thread in view.state.threads if thread["main"] for frame in thread["frames"])


def _find_peers(views: Sequence[View]) -> None:
    """Who reads from a socket waits for its peers when all its connections lead to ranks that were seen."""
    ends = {
        (view.home, socket.local): view
        for view in views
        for socket in view.state.sockets
        if socket.state == "ESTABLISHED"
    }
    homes = {view.home for view in views}
    for view in views:
        if view.waiting != SOCKET or view.verdict not in ("stuck", "unknown"):
            continue
        remotes = [socket.remote for socket in view.state.sockets if socket.state == "ESTABLISHED"]
        if remotes and all(any((home, remote) in ends for home in homes) for remote in remotes):
            view.waiting, view.verdict = PEERS, "waiting"


def _see_counts_move(views: Sequence[View], reports: Sequence[Mapping[str, Any]]) -> None:
    """Ranks of a communicator whose counts of collectives moved between two RAS reports work, wherever they were met."""
    moving = {
        (rank.get("pid"), rank.get("rank"))
        for report in reports
        for comm in report.get("communicators") or ()
        if comm.get("moved", report.get("moved"))
        for rank in comm.get("ranks") or ()
    }
    for view in views:
        names = {(pid, view.rank) for pid in (view.state.pid, view.state.ns_pid)}
        if view.verdict in ("waiting", "stuck", "unknown") and view.rank is not None and names & moving:
            view.verdict = "progressing"


def _find_lock_waiters(views: Sequence[View]) -> None:
    """Who waits for a file lock that a process seen here holds waits for that one."""
    seen = {(view.state.node, view.state.pid) for view in views if view.verdict != "dead"}
    for view in views:
        holder = view.state.lock.get("holder")
        if view.verdict in ("stuck", "unknown") and (view.state.node, holder) in seen and holder != view.state.pid:
            view.waiting, view.verdict = LOCK, "waiting"


def _find_idlers(views: Sequence[View]) -> None:
    """Where no process is a rank, who waits at a queue waits for its other side, and who listens waits for requests."""
    if any(view.rank is not None or view.waiting in (PEERS, STORE, GPU) for view in views):
        return
    for view in views:
        main = main_thread(view.state.threads)
        if view.state.role != "script" or view.verdict not in ("stuck", "unknown") or main is None:
            continue
        hit = first(_AT_QUEUE, frames_of(main))
        if hit is not None:
            ready = hit[0].stage == "ready"
            frame = view.match.why if view.stage == "program" else hit[1]
            view.match = replace(view.match, stage="ready" if ready else view.stage, why=frame, detail=hit[0].detail)
            view.waiting, view.verdict = hit[0].waiting, "waiting"
        elif any(socket.state == "LISTEN" for socket in view.state.sockets) and _polls(view, frames_of(main)):
            view.match = replace(view.match, stage="ready", detail="requests")
            view.waiting, view.verdict = ORDERS, "waiting"


_AT_QUEUE = (
    Rule("ready", ORDERS, ("get@multiprocessing/queues.py",), "work from a queue"),
    Rule("program", QUEUE, ("put@multiprocessing/queues.py",), "a queue that is full"),
)
_POLLS = ("ep_poll", "epoll_wait", "poll_schedule", "do_poll", "do_select", "csk_accept")


def _polls(view: View, stack: Sequence[Frame]) -> bool:
    """Whether it waits for whatever comes first on its sockets."""
    inner = [frame for frame in stack if not frame.native][:1]
    return any(word in view.state.wchan for word in _POLLS) or any(
        frame.file.endswith("selectors.py") or (frame.name == "accept" and frame.file.endswith("socket.py"))
        for frame in inner
    )


def _find_parents(views: Sequence[View]) -> None:
    """A program that started the ranks and does nothing itself waits for them, however it does that."""
    parents = {(view.state.node, view.state.parent) for view in views if view.verdict != "dead"}
    for view in views:
        idle = view.rank is None and view.stage in ("program", "unknown") and view.verdict in ("stuck", "unknown")
        if idle and view.state.threads and (view.state.node, view.state.pid) in parents:
            view.waiting, view.verdict = WORKERS, "waiting"


def _number_the_dead(scene: Scene) -> None:
    """A process that ended does not say its rank any more; when one such and one number are left, they belong together."""
    dead = [view for view in scene.ranks if view.rank is None and view.verdict == "dead"]
    known = {view.rank for view in scene.ranks if view.rank is not None}
    left = [number for number in range(scene.world_size or 0) if number not in known]
    if len(dead) == len(left) == 1:
        dead[0].rank = left[0]
