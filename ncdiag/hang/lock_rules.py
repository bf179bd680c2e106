"""File locks: the kernel says who holds the one that a process waits for (`RankState.lock`)."""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence

from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, claim, names, only_wait, seen
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.processes.locks import POLLED
from ncdiag.stages.threads import frames_of, is_user


def holder_of(view: View, views: Sequence[View]) -> Optional[View]:
    """The process seen here that holds the lock that `view` waits for."""
    pid = view.state.lock.get("holder")
    found = (other for other in views if (other.state.node, other.state.pid) == (view.state.node, pid))
    return next(found, None) if pid is not None else None


def file_locks(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Who waits for each other's locks; who waits for one that is held by a process outside, or by one that waits for it in turn.

    That a holder is stuck in something of its own is `outside_rules.outside`'s to say: those that wait for its lock are its witnesses.
    """
    waiting = [view for view in scene.views if view.state.lock]
    rings: List[List[View]] = []
    for view in waiting:
        ring = _ring(view, scene.views)
        if ring and not any(view in other for other in rings):
            rings.append(ring)
            yield _deadlock(ring)
    for group in _by_lock([view for view in waiting if not any(view in ring for ring in rings)]):
        holder = holder_of(group[0], scene.views)
        if holder is None:
            yield _outsider(group)
        elif holder.witness and not holder.state.lock and holder.stage != "ready":
            yield _each_other(holder, group)


def thread_locks(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Threads of one process that wait for locks without a time limit, while no thread of it runs that could release one."""
    waiting = [view for view in scene.ranks if view.witness and view.stage != "ready"]
    for view in scene.views:
        places = _at_locks(view) if view.verdict in ("stuck", "unknown") else []
        if len(places) < 2 or (len(scene.views) > 1 and not waiting):
            continue
        tail = f"; {only_wait(waiting)} for it" if waiting else ""
        yield claim(
            "rank-stuck-outside-collective",
            LIKELY,
            f"threads of {view.name} wait for locks that no running thread of it can release: {', '.join(places[:4])}{tail}",
            [Evidence(f"threads of {view.name}", f"{place}, no time limit") for place in places[:4]],
            culprits=[view],
            waits=[Wait(other.name, view.name, f"in {other.stage}, the other is not") for other in waiting],
        )


def _at_locks(view: View) -> List[str]:
    """Where threads are that acquire a lock without a limit; empty where any thread waits for something else, or runs."""
    found: List[str] = []
    for thread in view.state.threads:
        call = view.state.call if thread.get("main") else thread.get("call") or {}
        inner = next((frame for frame in frames_of(thread) if not frame.native), None)
        if call.get("name") != "futex" or not call.get("endless") or inner is None:
            return []
        if is_user(inner):  # conditions, events and queues have a frame of the library inside
            found.append(f"{inner.name} ({inner.file.rsplit('/', 1)[-1]}:{inner.line})")
    return found


def _ring(view: View, views: Sequence[View]) -> List[View]:
    """`view` and those whose locks it waits for in turn, where that leads back to it."""
    ring = [view]
    while len(ring) <= len(views):
        after = holder_of(ring[-1], views)
        if after is view:
            return ring
        if after is None or after in ring:
            return []
        ring.append(after)
    return []


def _by_lock(waiting: Sequence[View]) -> List[List[View]]:
    groups: dict[tuple, List[View]] = {}
    for view in waiting:
        lock = view.state.lock
        groups.setdefault((view.state.node, lock.get("holder"), lock.get("file"), lock.get("kind")), []).append(view)
    return list(groups.values())


def lock_in_words(view: View) -> str:
    """`the flock on /a.lock, held by pid 4711`"""
    return f"{lock_of(view)}, held by pid {view.state.lock.get('holder') or '?'}"


def lock_of(view: View) -> str:
    """`the flock on /a.lock`"""
    lock = view.state.lock
    if lock.get("kind") == POLLED:
        return f"the lock file {lock['file']}"
    return f"the {lock.get('kind') or 'lock'}" + (f" on {lock['file']}" if lock.get("file") else "")


def _evidence(views: Sequence[View]) -> List[Evidence]:
    return [Evidence("/proc/locks", f"{view.name} waits for {lock_in_words(view)}") for view in views[:4]]


def _deadlock(ring: Sequence[View]) -> Claim:
    """`ring`: each waits for the next one's lock, the last for the first one's."""
    after = [*ring[1:], ring[0]]
    text = "; ".join(
        f"{one.name} waits for {lock_of(one)}, which {two.name} holds" for one, two in zip(ring, after, strict=True)
    )
    return claim(
        "rank-stuck-outside-collective",
        SURE,
        f"a deadlock: {text}" if len(ring) > 1 else f"a deadlock with itself: {text}",
        [*_evidence(ring), *(seen(view) for view in ring[:4])],
        culprits=ring,
        waits=[Wait(one.name, two.name, lock_of(one)) for one, two in zip(ring, after, strict=True)],
    )


def _outsider(group: Sequence[View]) -> Claim:
    lock = group[0].state.lock
    pid, command = lock.get("holder"), lock.get("command") or ""
    who = f"process {pid}" + (f" ({command[:80]})" if command else "") if pid else "a process that is not seen here"
    verb = "wait" if len(group) > 1 else "waits"
    text = f"{names(group)} {verb} for {lock_of(group[0])}, which {who} holds; that is none of these processes"
    if lock.get("kind") == POLLED:
        text = f"{names(group)} {verb} for a lock file; the only one that is locked here is {lock['file']}, by {who}, none of these processes"
    found = claim(
        "rank-stuck-outside-collective",
        LIKELY if pid else POSSIBLE,
        text,
        [*_evidence(group), *(seen(view) for view in group[:3])],
        culprits=group,
        waits=[Wait(view.name, who, lock_of(view)) for view in group],
    )
    if pid:
        found.cause.remedy = (
            f"see what process {pid} does with the lock (ncdiag hang-dump {pid}), and end it where it is left over"
        )
    return found


def _each_other(holder: View, group: Sequence[View]) -> Claim:
    return claim(
        "rank-stuck-outside-collective",
        LIKELY,
        f"{holder.name} holds {lock_of(group[0])}, for which {names(group)} {'wait' if len(group) > 1 else 'waits'}, and itself waits for "
        "others: they wait for each other",
        [*_evidence(group), seen(holder)],
        culprits=[holder, *group],
        waits=[Wait(view.name, holder.name, lock_of(view)) for view in group],
    )
