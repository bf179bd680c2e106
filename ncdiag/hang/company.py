"""From rank states to the scene: what the processes say about each other, before any rule is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ncdiag.hang import activity
from ncdiag.hang.idle import takes_orders
from ncdiag.hang.scene import MANAGERS, Scene, View, look, what_state
from ncdiag.model import Cause, Frame, Progress, RankState
from ncdiag.processes.stacks import SPARED, python_frames
from ncdiag.stages.idle import RULES as IDLE
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import CHILD, GPU, LOCK, ORDERS, PEERS, QUEUE, SOCKET, STORE, WORKERS
from ncdiag.stages.threads import frames_of, is_user, main_thread
from ncdiag.stages.torch import A_MESSAGE, ONE_SIDED


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
    _find_helped(views)
    _find_parents(views)
    _see_counts_move(views, ras or ())
    _see_turns(views)
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
                view.match = replace(model.match, thread=view.match.thread)
                if model.match.detail in ONE_SIDED:
                    own = next((frame for frame in view.stack if is_user(frame)), None)
                    view.match = replace(view.match, detail=A_MESSAGE, why=own or view.match.why)
                view.waiting = model.waiting
                view.verdict = what_state(view.state, view.match, view.waiting)


def _has_native(view: View) -> bool:
    return any(frame.native for thread in view.state.threads if thread["main"] for frame in thread["frames"])


def _find_peers(views: Sequence[View]) -> None:
    """Who reads from a socket waits for its peers when the connections that it waits at lead to ranks that were seen."""
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
        far = [next((ends[home, end] for home in homes if (home, end) in ends), None) for end in _waited_at(view)]
        if far and all(other is not None and _is_peer(view, other) for other in far):
            view.waiting, view.verdict = PEERS, "waiting"


def _is_peer(view: View, other: View) -> bool:
    """Whether `other` is of its group: neither itself, nor, of a rank, a server of its own."""
    return other is not view and (other.rank is not None or view.rank is None or other.state.role in MANAGERS)


def _waited_at(view: View) -> List[str]:
    """The far ends of the connections that it waits at, of all where that is not known; of who waits for one more to connect, those that came there."""
    hears = view.state.call.get("hears") or ()
    if hears:
        return [remote for _, remote in hears]
    connected = [socket for socket in view.state.sockets if socket.state == "ESTABLISHED"]
    doors = {address.rpartition(":")[2] for address in view.state.call.get("listens", ())}
    return [socket.remote for socket in connected if not doors or socket.local.rpartition(":")[2] in doors]


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


def _see_turns(views: Sequence[View]) -> None:
    """Who slept most of the time and yet woke, while everybody in a collective woke, too: collectives come to their end, one by one. Where all sleep at
    this instant, they have to have sent something as well."""
    members = [view for view in views if view.verdict in ("waiting", "stuck") and view.waiting != WORKERS]
    peers = [view for view in members if view.waiting in (PEERS, STORE)]
    if len(peers) != len([view for view in members if view.verdict == "waiting"]):
        return
    late = [view for view in members if view.verdict == "stuck"]
    exchange = len(late) > 1 and all(view.rank is not None and _sends(view.state.progress) for view in late)
    if late and (peers or exchange) and all(_woke(view.state.progress) for view in members):
        for view in members:
            view.verdict, view.turns = "progressing", True


def _sends(progress: Optional[Progress]) -> bool:
    return progress is not None and progress.written_bytes > 0


def _woke(progress: Optional[Progress]) -> bool:
    return progress is not None and bool(progress.woken) and activity.cpu_share(progress) < activity.SPINNING


def _find_lock_waiters(views: Sequence[View]) -> None:
    """Who waits for a file lock that a process seen here holds waits for that one."""
    seen = {(view.state.node, view.state.pid) for view in views if view.verdict != "dead"}
    for view in views:
        holder = view.state.lock.get("holder")
        if view.verdict in ("stuck", "unknown") and (view.state.node, holder) in seen and holder != view.state.pid:
            view.waiting, view.verdict = LOCK, "waiting"


def _find_idlers(views: Sequence[View]) -> None:
    """Who waits at a queue waits for its other side, and who listens waits for requests. In a group that may be late for the others, unless all of it
    does so, or the others only wait for what the one that listens hands on."""
    hits = [(view, hit) for view in views if (hit := _idle_at(view)) is not None]
    idle = [view for view, _ in hits]
    rest = [view for view in views if view.rank is not None and view not in idle and view.verdict != "dead"]
    if any(view.rank is not None for view in idle) and rest and not (len(idle) == 1 and all(map(takes_orders, rest))):
        return
    if any(view.waiting in (PEERS, STORE, GPU) for view in views if view not in rest):
        return
    for view, (rule, frame) in hits:
        stage = "ready" if rule.stage == "ready" else view.stage
        shown = view.match.why if view.stage == "program" and view.match.why is not None else frame
        view.match = replace(view.match, stage=stage, why=shown, detail=rule.detail)
        view.waiting, view.verdict = rule.waiting, "waiting"


_AT_QUEUE = (
    Rule("ready", ORDERS, ("get@multiprocessing/queues.py",), "work from a queue"),
    Rule("program", QUEUE, ("put@multiprocessing/queues.py",), "a queue that is full"),
    Rule("program", QUEUE, ("_finalize_join@multiprocessing/queues.py",), "a queue that is full"),
)
_LISTENS = Rule("ready", ORDERS, ("",), "requests")
_SERVES = (*IDLE, Rule("ready", ORDERS, ("accept@socket.py",), "requests"))
_LEAVES_IT_TO_THREADS = tuple(
    Rule("ready", ORDERS, (frame,))
    for frame in ("join@threading.py", "_wait_for_tstate_lock@threading.py", "pause@signal.py")
)
_POLLS = ("ep_poll", "epoll_wait", "poll_schedule", "do_poll", "do_select", "csk_accept")


def _idle_at(view: View) -> Optional[Tuple[Rule, Optional[Frame]]]:
    """What it waits for, where that is work or a reader of its work; None where it is something else."""
    main = main_thread(view.state.threads)
    if (
        view.state.role != "script"
        or main is None
        or not (view.verdict in ("stuck", "unknown") or view.stage == "ready")
    ):
        return None
    stack = frames_of(main)
    hit = first(_AT_QUEUE, stack)
    if hit is not None:
        return hit
    if view.stage == "ready":
        return replace(_LISTENS, detail=view.match.detail), view.match.why
    if view.state.call.get("listens") or _hears_clients(view) or (not view.state.call and _polls(view, stack)):
        return _LISTENS, None
    if first(_LEAVES_IT_TO_THREADS, stack) is None:
        return None  # that it serves its figures beside does not make it idle
    others = [frames_of(thread) for thread in view.state.threads if thread is not main]
    return next((hit for other in others if not _internal(other) and (hit := first(_SERVES, other)) is not None), None)


def _internal(stack: Sequence[Frame]) -> bool:
    """A thread by which multiprocessing passes descriptors on."""
    return any("multiprocessing/" in frame.file for frame in stack)


def _hears_clients(view: View) -> bool:
    """Whether it waits for nothing but what clients of its own port ask for next."""
    ports = {socket.local.rsplit(":", 1)[-1] for socket in view.state.sockets if socket.state == "LISTEN"}
    own = [local for local, _ in view.state.call.get("hears", ())]
    return bool(own) and all(local.rsplit(":", 1)[-1] in ports for local in own)


def _polls(view: View, stack: Sequence[Frame]) -> bool:
    """Whether it listens, and waits for whatever comes first on its sockets."""
    if not any(socket.state == "LISTEN" for socket in view.state.sockets):
        return False
    inner = [frame for frame in stack if not frame.native][:1]
    return any(word in view.state.wchan for word in _POLLS) or any(
        frame.file.endswith("selectors.py") or (frame.name == "accept" and frame.file.endswith("socket.py"))
        for frame in inner
    )


def _find_helped(views: Sequence[View]) -> None:
    """Who waits for a program that it started moves as that one does."""
    moving = {
        (view.state.node, pid): view
        for view in views
        if view.verdict == "progressing"
        for pid in (view.state.parent, view.state.below)
        if pid is not None
    }
    for view in views:
        helper = moving.get((view.state.node, view.state.pid))
        if helper is not None and view.waiting == CHILD and view.verdict in ("stuck", "unknown"):
            view.helper, view.verdict = helper, "progressing"


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
