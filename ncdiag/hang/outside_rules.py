"""A rank that is in something of its own while others wait for it: stuck, slow to tell, or in an endless loop."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, at_own_line, claim, names, only_wait, seen
from ncdiag.hang.grounds import duration, perhaps, stands, waited_s
from ncdiag.hang.idle import (
    at_semaphore,
    in_a_group,
    napping,
    naps,
    unnamed,
    waits_by_nature,
    waits_for_a_result,
    what_for,
)
from ncdiag.hang.lock_rules import lock_of
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.processes.stacks import NO_FRAME
from ncdiag.stages.order import CHILD, CLUSTER, DISK, DNS, HUB, WAITING, WORKERS
from ncdiag.stages.threads import frames_of, is_user

OUTSIDE = "rank-stuck-outside-collective"
_ENDLESS_S = 600.0
"""Seconds that the others have waited for one that computes at one place, after which a loop without an end is the likelier answer: to pickle, sort,
decompress, hash or factorise much takes minutes in one call, and allocates nothing on the way."""
_ASK_HUB = (
    "see whether the hub answers that node, through its proxy where it has one (curl -I https://huggingface.co, or HF_ENDPOINT); or download the model "
    "beforehand and set HF_HUB_OFFLINE=1"
)
_TOLD_ELSEWHERE = (DNS, CLUSTER)
"""Waits that have rules of their own."""


def outside(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A rank that is in something of its own while others wait for their peers."""
    waiting = [view for view in scene.ranks if view.witness and view.stage != "ready"]
    idle = [view for view in scene.ranks if view.witness and view.stage == "ready"]
    above = [view for view in scene.managers if view.witness]
    group = in_a_group(scene.views)
    pool = not group and bool(idle) and all(view.state.role == "script" for view in scene.ranks)
    if pool:  # its idle workers wait for tasks, not for each other
        held_up = [view for view in above if waits_for_a_result(view)]
    else:
        held_up = waiting or (idle if _executor_waits(scene) else []) or (above if not scene.ranks else [])
    stuck: List[View] = []
    for view in scene.ranks or scene.managers:
        if (
            view.verdict not in ("stuck", "unknown", "progressing")
            or view.waiting in _TOLD_ELSEWHERE
            or view.state.lock
        ):
            continue
        if view.verdict != "stuck":
            yield from _suspect(scene, view, held_up)
        elif held_up or _alone(scene) or _all_stuck(scene):
            stuck.append(view)
    if not held_up and not group:
        results = [view for view in above if waits_for_a_result(view)]
        semaphores = any(map(at_semaphore, stuck))
        if results and stuck and not semaphores:  # whoever started them and waits for them is held up
            held_up, pool = results, True
        else:
            stuck = [view for view in stuck if semaphores or not waits_by_nature(view)]
    for found in _several(stuck, held_up, _alone(scene), pool):
        if len(found.culprits) == 1:
            found.cause.summary += _ended(found.culprits[0], scene.views)
        yield found


def _executor_waits(scene: Scene) -> bool:
    return any(view.waiting == WORKERS and view.verdict == "waiting" for view in scene.managers)


def _alone(scene: Scene) -> bool:
    return len(scene.ranks) == 1 and not scene.absent


def _several(stuck: List[View], waiting: List[View], alone: bool, pool: bool) -> Iterator[Claim]:
    """Each stuck rank holds up those that wait; where nobody waits and several are stuck, none can be named."""
    if waiting or len(stuck) < 2:
        found = [_stuck(view, waiting, alone) for view in stuck]
        for one in found if pool else ():  # a task may take its time
            one.cause.confidence = POSSIBLE
        if len(found) > 1 and len({(one.cause.cause, one.cause.confidence) for one in found}) == 1:
            found[0].cause.summary = _together(stuck, waiting)
        yield from found
        return
    by_slug: Dict[str, List[View]] = {}
    for view in stuck:
        by_slug.setdefault(_slug(view), []).append(view)
    for slug, views in by_slug.items():
        if len(views) > 1 and all(map(naps, views)):
            yield napping(views, [_does(view) for view in views])
        elif len(views) > 1 and slug == OUTSIDE:
            yield unnamed(views, [_does(view) + _on(view) for view in views])
        else:
            yield from (_stuck(view, waiting, alone) for view in views)


def _together(stuck: List[View], waiting: List[View]) -> str:
    told: Dict[str, List[View]] = {}
    for view in stuck:
        told.setdefault(_does(view) + _on(view), []).append(view)
    parts = "; ".join(f"{names(views)} {_plural(text) if len(views) > 1 else text}" for text, views in told.items())
    return f"{parts}; {only_wait(waiting)} for them{_late(stuck[0], stands(stuck[0], waiting))}"


_MANY = (("is in its", "are in their"), ("is in", "are in"), ("and waits", "and wait"), ("of it ", "of them "))


def _plural(text: str) -> str:
    for one, many in _MANY:
        text = text.replace(one, many, 1)
    return text


def _suspect(scene: Scene, view: View, waiting: List[View]) -> Iterator[Claim]:
    if view.verdict == "progressing":
        yield from _busy(scene, view, waiting)
    elif view.verdict == "unknown" and view.waiting in (DISK, HUB) and stages.stage(view.stage).works:
        yield claim(
            "storage-slow",
            POSSIBLE,
            f"{view.name} {_does(view)} and waits for {WAITING[view.waiting or DISK]}; "
            "whether bytes arrive was not measured",
            [seen(view), *_kernel(view)],
            where=_place(view),
            waits=_arrows(waiting, view),
        )
    elif (
        view.verdict == "unknown"
        and waiting
        and view.stage != "unknown"
        and not (stages.stage(view.stage).works and view.waiting is None)
    ):
        yield claim(
            "rank-stuck-outside-collective",
            POSSIBLE,
            f"{view.name} {_does(view)}; {names(waiting)} wait. Whether it moves was not measured",
            [seen(view)],
            culprits=[] if len(scene.ranks) == 2 else [view],
            where=_place(view),
            waits=_arrows(waiting, view),
        )


def _all_stuck(scene: Scene) -> bool:
    return all(view.verdict in ("stuck", "dead", "stopped", "waiting") for view in scene.ranks)


def _ended(view: View, views: Sequence[View]) -> str:
    """What became of programs that it started, where they did not end well; empty where there are none."""
    ended = [
        f"pid {other.state.pid}, which it started, ended {other.state.ended}"
        for other in views
        if other.verdict == "dead"
        and (other.state.node, other.state.parent) == (view.state.node, view.state.pid)
        and other.state.ended not in ("", "with exit code 0")
    ]
    return "; ".join(["", *ended[:2]])


def _stuck(view: View, waiting: List[View], alone: bool) -> Claim:
    helped = view.waiting == CHILD and stages.stage(view.stage).works  # compilers and the like may wait themselves
    # a program of one process that waits in its own code may just be idle: nobody is held up
    idle = not waiting and view.stage in ("program", "unknown") and (view.state.world_size or 1) == 1
    ground = stands(view, waiting)
    asleep = view.waiting is not None or bool(view.call.get("name"))
    known = asleep and bool(waiting or alone) and not helped and not idle
    locked = [other for other in waiting if other.state.lock.get("holder") == view.state.pid]
    tail = f"; {only_wait(waiting)} for it" if waiting else ""
    if locked:
        tail = f"; it holds {lock_of(locked[0])}, and {only_wait(waiting)} for it"
    if view.state.child_places:
        tail = f": {view.state.child_places[0]}{tail}"
    found = claim(
        _slug(view),
        LIKELY if known and ground else POSSIBLE,
        f"{view.name} {_does(view)}{_on(view)}{tail}" + (_late(view, ground) if waiting else ""),
        [seen(view), *_kernel(view), *(Evidence(f"children of {view.name}", text) for text in view.state.child_places)],
        culprits=[view],
        waits=_arrows(waiting, view),
    )
    if view.waiting == HUB:
        found.cause.remedy = _ASK_HUB
    elif view.stage == "shutdown" and not waiting:
        found.cause.remedy = (
            "let that thread come to its end with the program (an event that stops it), or make it a daemon"
        )
    elif idle and view.rank is None:
        found.cause.remedy = (
            "look at what it waits for, its stack says where; nothing shows that another process waits for it"
        )
    return found


def _late(view: View, ground: str) -> str:
    """Whether that is for good, as far as it is seen."""
    if ground:
        return f"; {ground}"
    window_s = view.state.progress.window_s if view.state.progress is not None else 0.0
    hint = perhaps(view)
    return f": late or stuck, which a look of {window_s:.0f} s does not tell" + (f" ({hint})" if hint else "")


def _slug(view: View) -> str:
    return "storage-slow" if view.waiting == HUB else OUTSIDE


def _on(view: View) -> str:
    return f" and {what_for(view)}"


def _kernel(view: View) -> List[Evidence]:
    state = view.state
    words = ", ".join(
        f"{name} {text}"
        for name, text in (("state", state.state), ("wchan", state.wchan), ("syscall", state.syscall.split(" ")[0]))
        if text
    )
    return [Evidence(f"/proc/{state.pid} on {state.node}", words)] if words else []


def _busy(scene: Scene, view: View, waiting: List[View]) -> Iterator[Claim]:
    """Computes without reading, writing or allocating, in code of its own, while all others wait: loop or long sum."""
    progress = view.state.progress
    if progress is None or not waiting or stages.stage(view.stage).works or activity.moves_data(progress):
        return
    if progress.children_cpu_s >= activity.BUSY * progress.window_s:
        return
    if len(waiting) + 1 < len(scene.ranks) or view.stage not in ("program", "unknown") or not activity.busy(progress):
        return
    still = progress.frames_changed is False and waited_s(waiting) >= _ENDLESS_S
    since = f", for {duration(waited_s(waiting))}" if waited_s(waiting) else ""
    yield claim(
        "rank-stuck-outside-collective",
        LIKELY if still else POSSIBLE,
        f"{view.name} computes in {_computing(view)} ({activity.rate(progress)}) and reads, writes and allocates "
        f"nothing: an endless loop or a very long calculation; {only_wait(waiting)} for it{since}",
        [seen(view)],
        culprits=[view],
        waits=_arrows(waiting, view),
    )


def _computing(view: View) -> str:
    """Where the thread computes that does: another one than the main thread, where that one sleeps."""
    active = [thread for thread in view.state.threads if thread.get("active") or thread.get("owns_gil")]
    for thread in sorted(active, key=lambda one: not one.get("owns_gil")):
        own = next((frame for frame in frames_of(thread) if is_user(frame)), None)
        if own is not None and not any(one.get("main") for one in active):
            where = f"{own.name} ({own.file.rsplit('/', 1)[-1]}:{own.line})"
            return f"{where} of thread {thread.get('name') or thread.get('tid')}"
    return _frame(view)


def _frame(view: View) -> str:
    frame = view.match.why
    return (
        f"{frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})"
        if frame is not None
        else "code that was not read"
    )


def _does(view: View) -> str:
    if view.stage == "program":
        return f"is in its own code, {_frame(view)},"
    if view.stage == "unknown" and (view.state.stack_error or "").startswith(NO_FRAME):
        return "is in no Python code, as an interpreter that starts or ends,"
    if view.stage == "unknown" and view.match.why is not None:
        return f"is in {view.match.why.name if view.match.why.native else _frame(view)}"
    detail = f" ({view.match.detail})" if view.match.detail else at_own_line(view)
    return stages.describe(view.stage) + detail


def _place(view: View) -> dict:
    return {"stage": view.stage} if view.rank is None else {"node": view.state.node, "stage": view.stage}


def _arrows(waiting: List[View], view: View) -> List[Wait]:
    return [Wait(other.name, view.name, f"in {other.stage}, the other is not") for other in waiting]
