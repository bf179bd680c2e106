"""What the state of single ranks says: stopped, dead, or missing beside those that wait."""

from __future__ import annotations

from typing import Iterator, List

from ncdiag import stages
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, claim, names, numbers, seen
from ncdiag.hang.scene import MANAGERS, Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence


def stopped(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A process that is stopped, frozen or held by a debugger moves nothing, whatever its stack says."""
    for view in scene.views:
        if view.verdict != "stopped" or _needed_no_more(scene, view):
            continue
        how, text = view.state, _how(view)
        yield claim(
            "rank-stopped",
            SURE if how.state != "t" or how.tracer else LIKELY,
            f"{view.name} is stopped ({text})" + _while(view),
            [Evidence(f"process {how.pid} on {how.node}", text)],
            culprits=[view],
            waits=_waits_for(scene, view),
            known={"PID": how.pid},
        )


def stopped_launcher(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """What started the ranks is stopped: they go on without it."""
    for view in scene.views:
        if view.verdict == "stopped" and _needed_no_more(scene, view):
            how, text = view.state, _how(view)
            yield claim(
                "rank-stopped",
                POSSIBLE,
                f"the launcher {view.name} is stopped ({text}); its ranks do not wait for it",
                [Evidence(f"process {how.pid} on {how.node}", text)],
                where={"node": how.node, "pid": how.pid},
                known={"PID": how.pid},
            )


def _needed_no_more(scene: Scene, view: View) -> bool:
    return view.state.role == "launcher" and any(rank.verdict != "dead" for rank in scene.ranks)


def _how(view: View) -> str:
    state = view.state
    if state.frozen:
        return "its cgroup is frozen"
    return f"debugger {state.tracer} holds it" if state.tracer else f"state {state.state}"


def stopped_helper(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A data loader or compiler that is stopped gives its rank nothing."""
    for view in scene.ranks:
        if view.state.halted_children and view.verdict in ("stuck", "waiting", "unknown"):
            which = ", ".join(view.state.halted_children)
            yield claim(
                "rank-stopped",
                LIKELY if view.verdict == "stuck" else POSSIBLE,
                f"a process that {view.name} started is stopped (state T): {which}",
                [
                    Evidence(f"children of process {view.state.pid} on {view.state.node}", f"state T: {which}"),
                    seen(view),
                ],
                culprits=[view],
                waits=_waits_for(scene, view),
                known={"PID": " ".join(child.split()[0] for child in view.state.halted_children)},
            )


def _while(view: View) -> str:
    return "" if view.stage == "unknown" else f" while it {stages.describe(view.stage)}"


def dead(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A rank that ended while others wait for it."""
    gone = [view for view in scene.ranks if view.verdict == "dead"]
    left = [view for view in scene.ranks if view.verdict != "dead"]
    managers = [view for view in scene.managers if view.verdict == "dead"]
    if gone and left:
        what = _end(gone)
        yield claim(
            "rank-died",
            LIKELY,
            f"{names(gone)} {what}; {names(left)} still {_wait(left)}",
            [_ending(view) for view in gone],
            culprits=gone,
            waits=[wait for view in gone for wait in _waits_for(scene, view)],
        )
    elif gone:
        yield claim(
            "rank-died",
            POSSIBLE,
            f"{names(gone)} {_end(gone)}, no rank is left",
            [_ending(view) for view in gone],
            culprits=gone,
        )
    elif managers and left:
        yield claim(
            "rank-died",
            LIKELY,
            f"{names(managers)} ended; {names(left)} still {_wait(left)}",
            [_ending(view) for view in managers],
            culprits=managers,
        )


def _wait(views: List[View]) -> str:
    return "wait" if len(views) > 1 else "waits"


def _ending(view: View) -> Evidence:
    state = view.state
    return Evidence(
        f"process {state.pid} on {state.node}", f"{state.state} (ended {state.ended})" if state.ended else state.state
    )


def _end(gone: List[View]) -> str:
    if not all(view.state.state[:1] == "Z" for view in gone):
        return "ended"
    how = {view.state.ended for view in gone}
    text = "are zombies" if len(gone) > 1 else "is a zombie"
    return f"{text} (ended {how.pop()})" if len(how) == 1 and all(how) else text


def orphaned(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Ranks wait, and some of the world were not seen; those at the store are `store_rules.meeting`'s."""
    waiting = [view for view in scene.ranks if view.witness and view.waiting not in ("orders",)]
    if not scene.absent or not waiting or any(view.stage == "rendezvous" for view in waiting):
        return
    if any(view.stage == "ready" for view in scene.ranks) or picture.strangers(waiting):
        return  # they came: who is connected, or was ready with the others, only was not seen here
    homes = {view.home for view in scene.ranks}
    expected = {view.state.settings.get("LOCAL_WORLD_SIZE") for view in scene.ranks} - {None}
    here = (
        bool(expected)
        and len(homes) == 1
        and all(int(size) > len(scene.ranks) for size in expected if size and size.isdecimal())
    )
    text = "should run here and does not" if here else "was not seen here; look at its node too"
    yield claim(
        "rank-missing",
        LIKELY if here else POSSIBLE,
        f"{numbers(scene.absent)} of {scene.world_size} {text}",
        [seen(view) for view in waiting[:3]],
        absent=scene.absent,
        waits=[Wait(view.name, numbers(scene.absent), f"in {view.stage}") for view in waiting],
    )


def _waits_for(scene: Scene, view: View) -> List[Wait]:
    if view.state.role in MANAGERS:
        return []
    return [
        Wait(other.name, view.name, f"in {other.stage}") for other in scene.ranks if other is not view and other.witness
    ]
