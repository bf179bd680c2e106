"""Programs whose processes form no group: workers that wait for tasks, servers that wait for requests, whoever waits at a queue.

In a group of ranks who waits outside a collective holds up the others. Here nobody is known to wait for anybody, so an idle process is not late.
"""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, names, seen
from ncdiag.hang.scene import Scene, View
from ncdiag.model import Evidence, Frame
from ncdiag.stages.idle import TASKS
from ncdiag.stages.match import Rule, first
from ncdiag.stages.order import DISK, GPU, HUB, LOCK, ORDERS, PEERS, PIPE, QUEUE, SLEEP, SOCKET, STORE, TYPED, WAITING
from ncdiag.stages.threads import frames_of, is_user, main_thread

_RESULT = tuple(
    Rule("program", None, (frame,))
    for frame in (
        "get@multiprocessing/pool.py",
        "next@multiprocessing/pool.py",
        "result@concurrent/futures/_base.py",
        "wait@concurrent/futures/_base.py",
        "as_completed@concurrent/futures/_base.py",
        "result_iterator@concurrent/futures/_base.py",
        "shutdown@concurrent/futures/process.py",
        "_try_get_data@torch/utils/data/dataloader.py",
    )
)
"""A program that waits for what its workers work on."""

_END = tuple(
    Rule("program", None, (frame,)) for frame in ("join@multiprocessing/pool.py", "join@multiprocessing/process.py")
)
"""A program that waits for its workers to end."""

_BY_NATURE = (
    "wait@threading.py",
    "join@threading.py",
    "_wait_for_tstate_lock@threading.py",
    "get@queue.py",
    "pause@signal.py",
)
_AT_QUEUE = (*TASKS, Rule("ready", ORDERS, ("get@multiprocessing/queues.py",)))
_SEMAPHORE = (
    Rule("program", LOCK, ("~_multiprocessing_SemLock_acquire_impl",)),
    Rule("program", LOCK, ("__enter__@multiprocessing/synchronize.py",)),
)


NAP_S = 30.0
"""Seconds below which a sleep is one of many."""


def in_a_group(views: Sequence[View]) -> bool:
    """Whether the processes are ranks, or some of them: then somebody waits for whoever stays away."""
    return any(
        view.rank is not None or (view.state.world_size or 1) > 1 or view.waiting in (PEERS, STORE, GPU)
        for view in views
    )


def waits_for_a_result(view: View) -> bool:
    """Whether a program waits for what its workers work on, or for them to end."""
    return first(_RESULT + _END, _main(view)) is not None


def waits_by_nature(view: View) -> bool:
    """Whether a program may wait like this for as long as it likes: for a key, a signal, an event, a time."""
    if view.stage not in ("program", "unknown"):
        return False
    if view.waiting in (None, SLEEP, PIPE, TYPED, SOCKET):
        return True
    return (
        view.waiting == LOCK and first([Rule("program", LOCK, (name,)) for name in _BY_NATURE], _main(view)) is not None
    )


def takes_orders(view: View) -> bool:
    """Whether it is in a collective by which one rank gives the others something."""
    return view.witness and view.waiting == PEERS and view.match.detail in _HANDED_ON


_HANDED_ON = ("broadcast", "broadcast_object_list", "scatter", "scatter_object_list", "recv", "recv_object_list")


def served(scene: Scene) -> Optional[Claim]:
    """A group that waits for work: all its ranks do, or one does that hands it on to the others. Nobody is late for anybody."""
    free = [view for view in scene.ranks if view.witness and view.stage == "ready" and view.waiting == ORDERS]
    rest = [view for view in scene.ranks if view not in free]
    if not free or not in_a_group(scene.views) or any(view.state.role != "script" for view in scene.ranks):
        return None
    if rest and not (len(free) == 1 and all(map(takes_orders, rest))):
        return None
    text, open_to = f"{names(free)} {_verb(free)} for work", [view for view in free if not _at_tasks(view)]
    if rest:
        text += f" ({free[0].match.detail}), and {names(rest)} for what it hands on ({rest[0].match.detail})"
    elif open_to:
        text += f", {names(open_to)} for requests from outside, and none of the ranks is in a collective"
    else:
        text += " from a queue, and none of the ranks is in a collective"
    sure = bool(open_to) and not rest and not scene.absent and not any(map(_open, free))
    return claim("healthy", LIKELY if sure else POSSIBLE, text, [seen(view) for view in free[:4]], where={})


def at_semaphore(view: View) -> bool:
    """Whether it waits for a lock of multiprocessing, whose holder is written nowhere."""
    return first(_SEMAPHORE, _main(view)) is not None


def idlers(scene: Scene) -> Optional[Claim]:
    """Every worker waits for work: `healthy`, or, where the program above waits too, no more than that nobody of them is late."""
    members = scene.ranks or scene.managers
    if not members or in_a_group(scene.views) or any(view.state.role not in ("script", "launcher") for view in members):
        return None
    if any(not view.witness or view.waiting not in (ORDERS, QUEUE) for view in members):
        return None
    busy = [view for view in members if _open(view)]
    above = [
        view
        for view in scene.managers
        if view not in members and view.stage != "ready" and view.verdict != "progressing"
    ]
    serve = all(view.waiting == ORDERS and not _at_tasks(view) for view in members)
    parents = [view for view in above if not serve or waits_for_a_result(view)]
    who = _who(members)
    evidence = [seen(view) for view in (*parents[:1], *members[:2])]
    if parents:
        return _open_end(
            f"{who}, so none of them is late; {_above(parents[0], all(view.waiting == QUEUE for view in members))}",
            evidence,
        )
    if busy:
        places = [text for view in busy for text in _threads_at_work(view)]
        told = f"a thread of it is at {places[0]}" if places else "whether one of them is stuck inside cannot be told"
        text = f"{names(busy)} {_verb(busy)} for requests and holds open connections; {told}"
        return _open_end(text, [seen(view) for view in busy[:2]])
    return claim("healthy", LIKELY, f"{who}, and nobody is late", evidence, where={})


def _who(members: Sequence[View]) -> str:
    full = [view for view in members if view.waiting == QUEUE]
    free = [view for view in members if view.waiting != QUEUE]
    parts = [f"{names(free)} {_verb(free)} for work"] if free else []
    parts += [f"{names(full)} {_verb(full)} for the reader of a queue that is full"] if full else []
    return ", ".join(parts)


def _verb(views: Sequence[View]) -> str:
    return "wait" if len(views) > 1 else "waits"


def what_for(view: View) -> str:
    """`waits for a lock`, `waits for somebody to read what it writes (its standard output)`; where that is not known, that nothing moves."""
    if view.waiting:
        return f"waits for {_exactly(view) or WAITING[view.waiting]}"
    if any(frame.name.endswith("_run_once") and "asyncio/" in frame.file for frame in view.stack):
        return "waits in its event loop, where no coroutine runs"
    return "nothing of it moves"


def _exactly(view: View) -> str:
    """What it waits for, by the call that it is in; empty where that says no more than the kind of the wait."""
    call, about = view.call, ""
    if view.waiting == PIPE and call.get("sink"):
        return "somebody to read what it writes" + _stream(call["sink"])
    if view.waiting == PIPE and call.get("source"):
        return "somebody to write what it reads" + _stream(call["source"])
    file = call.get("source", {}).get("file") or call.get("path")
    if view.waiting == DISK and file:
        return f"the file {file}"
    if view.waiting == SOCKET and call.get("listens") and not call.get("hears"):
        return f"somebody to connect to {call['listens'][0]}"
    ends = sorted({remote for _, remote in call.get("hears", ())})
    if len(ends) == 1 and view.waiting == SOCKET:
        about = f"an answer from {ends[0]}"
    elif len(ends) == 1 and view.waiting == HUB:
        about = f"{WAITING[HUB]} from {ends[0]}"
    return about


def _stream(end: Mapping[str, Any]) -> str:
    """` (its standard output)`"""
    return f" (its {end['stream']})" if end.get("stream") else ""


def lonely(views: Sequence[View]) -> Optional[Claim]:
    """Processes of no group that wait as a program may: no fault is seen, and none is excluded."""
    waiting = [view for view in views if view.verdict == "stuck" and waits_by_nature(view)]
    if not waiting or in_a_group(views):
        return None
    first_of = waiting[0]
    rest = len(waiting) - 1
    more = f" ({rest} more wait{'' if rest > 1 else 's'} too)" if rest else ""
    return _open_end(
        f"{first_of.name} is at {_place(first_of)} and {what_for(first_of)}{more}; nobody is seen to wait for it, and whether it is meant to wait "
        "there cannot be told from outside",
        [seen(view) for view in waiting[:4]],
    )


def _open_end(summary: str, evidence: Sequence[Evidence]) -> Claim:
    found = claim("unresolved", POSSIBLE, summary, evidence, where={})
    found.cause.remedy = "nothing, if it is meant to wait there; else that line of its code says for what"
    return found


def _above(view: View, full: bool) -> str:
    on = f" and waits for {WAITING[view.match.waiting]}" if view.match.waiting else ""
    text = f"{view.name} is at {_place(view)}{on}"
    if first(_END, _main(view)) is not None:
        if full:
            return f"{text}: it waits for its workers to end, and they do not before somebody has read what they put; read the queue before the join"
        return f"{text}: it waits for its workers to end, and they wait for work; see who has to tell them that there is no more"
    if waits_for_a_result(view):
        return f"{text}: it waits for a result, and no worker works on one; a task may be lost, as when its worker was killed"
    return f"{text}: whether it is meant to wait there cannot be told from outside"


def _place(view: View) -> str:
    frame = view.match.why
    if frame is not None and frame.native:
        frame = next((one for one in view.stack if not one.native), frame)
    return (
        f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
        if frame is not None
        else "a place that was not read"
    )


def _main(view: View) -> List[Frame]:
    main = main_thread(view.state.threads)
    return frames_of(main) if main is not None else []


def _at_tasks(view: View) -> bool:
    """Whether it waits at a queue, and not for requests from outside."""
    return first(_AT_QUEUE, _main(view)) is not None


def _open(view: View) -> bool:
    """Whether a server has a connection open: a request that is served, or stuck, or only kept alive."""
    ports = {socket.local.rsplit(":", 1)[-1] for socket in view.state.sockets if socket.state == "LISTEN"}
    return any(
        socket.state == "ESTABLISHED" and socket.local.rsplit(":", 1)[-1] in ports for socket in view.state.sockets
    )


def _threads_at_work(view: View) -> List[str]:
    """Where the threads beside the main one are in code of the program: requests that are served, or stuck."""
    main = main_thread(view.state.threads)
    others = [frames_of(thread) for thread in view.state.threads if thread is not main]
    own = [next((frame for frame in stack if is_user(frame)), None) for stack in others]
    return [f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" for frame in own if frame is not None]


def naps(view: View) -> bool:
    """Whether it is in a short sleep, of a step or of a poll."""
    return view.waiting == SLEEP and view.call.get("left_s", NAP_S) < NAP_S


def napping(views: Sequence[View], does: Sequence[str]) -> Claim:
    """All ranks of a group are in short sleeps: none of them waits for another at this instant."""
    at = sorted({text.removeprefix("is ").replace("in its own", "in their own").rstrip(",") for text in does})
    left = max(view.call["left_s"] for view in views)
    found = claim(
        "unresolved",
        POSSIBLE,
        f"all {len(views)} ranks sleep ({'; '.join(at[:4])}), the longest for {left:.1f} s more: none of them waits for another at this instant, and "
        "whether they sleep in every step or poll for something that never comes is not seen in so short a look",
        [seen(view) for view in views[:4]],
        where={"stage": views[0].stage},
    )
    found.cause.remedy = (
        "look again: ranks that get on are elsewhere then; else that line of their code says what they poll for"
    )
    return found


def unnamed(views: Sequence[View], does: Sequence[str]) -> Claim:
    """Several are stuck, and nothing says who of them holds up the others. `does`: in words, one a view."""
    told: dict[str, List[View]] = {}
    for view, text in zip(views, does, strict=True):
        told.setdefault(text, []).append(view)
    nap = [view for view in views if naps(view)]
    at_lock = [view for view in views if at_semaphore(view)]
    free = [view for view in views if view not in at_lock]
    parts = "; ".join(f"{names(group)}: {text.removeprefix('is ').rstrip(',')}" for text, group in told.items())
    hint = ""
    if at_lock and free:
        hint = f". Who holds a lock of multiprocessing is written nowhere; {names(free)} {'do' if len(free) > 1 else 'does'} not wait for it: look there first"
    elif at_lock:
        hint = ". Who holds a lock of multiprocessing is written nowhere; a holder that ended keeps it for ever"
    elif nap and len(nap) < len(views):
        rest = [view for view in views if view not in nap]
        hint = f". {names(nap)} {'sleep' if len(nap) > 1 else 'sleeps'} in short pieces, as who polls for something does, and {names(rest)} {'do' if len(rest) > 1 else 'does'} not: look there first"
    found = claim(
        "rank-stuck-outside-collective",
        POSSIBLE,
        f"these {len(views)} processes are stuck, and none of them can be named: {parts}{hint}",
        [Evidence(item.source, item.text) for item in (seen(view) for view in views[:8])],
        where={"stage": views[0].stage},
    )
    found.cause.remedy = "read their stacks, and find who has what they wait for"
    return found
