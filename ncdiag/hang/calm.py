"""Nobody holds anybody up: all are ready or at work, or those that the others wait for are moving. Slow is not hung."""

from __future__ import annotations

from typing import List, Optional, Sequence

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, seen
from ncdiag.hang.idle import idlers, in_a_group, served
from ncdiag.hang.remaining import remaining
from ncdiag.hang.scene import Scene, View
from ncdiag.model import Evidence
from ncdiag.nodeset import counted
from ncdiag.stages import steps
from ncdiag.stages.order import PIPE

_AT_WORK = ("program", "collective", "serving", "ready")
_SLOW_BYTES_S = 100e6
"""Bytes per second and rank below which storage is slow for weights: a cold NFS gives 200 MB/s and more."""


def calm(scene: Scene, claims: Sequence[Claim]) -> Optional[Claim]:
    """`healthy` or `slow-not-hung`; None where a rule found more than a possibility, or somebody is stopped or gone."""
    members = scene.ranks or scene.views
    if not members or any(found.cause.confidence != POSSIBLE for found in claims):
        return None
    if any(view.verdict in ("dead", "stopped") for view in members):
        return None
    group = served(scene)
    if group is not None and not any(found.culprits or found.absent for found in claims):
        return group
    idle = idlers(scene)
    if idle is not None and not claims:
        return idle
    above = scene.managers if not scene.ranks or scene.absent else []
    moving = [view for view in (*scene.ranks, *above) if view.verdict == "progressing"]
    if moving and not any(found.culprits or found.absent for found in claims):
        return _lone(moving[0]) if len(members) == 1 and not in_a_group(scene.views) else _at_work(members, moving)
    busy = any(
        view.stage in ("engine-init", "message-queues") or view.stage.startswith("wait") for view in scene.managers
    )
    ready = all(view.stage in ("ready", "ray-actor") for view in members)
    if not ready or busy or claims:
        return None
    return claim(
        "healthy",
        POSSIBLE if scene.absent else LIKELY,
        f"{len(members)} of {counted(scene.world_size or len(members), 'rank')} {'is' if len(members) == 1 else 'are'} ready and wait{'s' if len(members) == 1 else ''} for work",
        [seen(view) for view in members[:2]],
        where={},
    )


def _at_work(members: Sequence[View], moving: Sequence[View]) -> Claim:
    doubt = any(view.verdict in ("stuck", "unknown") for view in members) or not any(_plainly(view) for view in moving)
    confidence, evidence = POSSIBLE if doubt else LIKELY, [seen(view) for view in moving[:4]]
    if len(moving) * 2 > len(members) and all(view.stage in _AT_WORK for view in members):
        return claim(
            "healthy",
            confidence,
            f"{len(moving)} of {counted(len(members), 'rank')} {'was' if len(moving) == 1 else 'were'} seen at work, nobody holds up the others",
            evidence,
            where={},
        )
    first = min((view.stage for view in moving), key=stages.order)
    return claim("slow-not-hung", confidence, _words(moving), evidence, where={"stage": first})


def counts_on(scene: Scene) -> Optional[Claim]:
    """`slow-not-hung`, where work was logged during the look itself: what stands still between two steps may do so for seconds."""
    for view in scene.views:
        state = view.state
        if (
            view.verdict in ("dead", "stopped")
            or not state.log_source
            or state.silent_s is None
            or state.progress is None
        ):
            continue
        line = steps.counted_on(state.log_tail) if state.silent_s < state.progress.window_s else None
        if line is not None:
            text = f"slow, not hung: the log of {view.name} counted on {state.silent_s:.0f} s ago"
            return claim("slow-not-hung", LIKELY, text, [Evidence(state.log_source, line.strip()[:200])], where={})
    return None


def _lone(view: View) -> Claim:
    """A program that nobody waits for, at work: whether it gets anywhere is not seen from outside."""
    rate = activity.rate(view.state.progress)
    moves = activity.moves_data(view.state.progress) if view.state.progress else False
    doubt = "" if moves else "; it reads, writes and allocates nothing, so an endless loop looks the same"
    text = f"{view.name} is at work" + (f" ({rate})" if rate else "") + f", and nobody is seen to wait for it{doubt}"
    return claim("healthy", LIKELY if moves else POSSIBLE, text, [seen(view)], where={})


def _plainly(view: View) -> bool:
    """Whether it is plain that it moves, and not only woken now and then."""
    if view.helper is not None:
        return _plainly(view.helper)
    progress = view.state.progress
    if progress is None:
        return False
    reads = view.waiting == PIPE and progress.own_rchar > 0
    moves = activity.moves_data(progress) or activity.busy(progress) or bool(progress.frames_changed)
    return view.turns or reads or moves


def _words(moving: Sequence[View]) -> str:
    view = moving[0]
    rate = activity.rate(view.state.progress)
    left = remaining(view.state.log_tail)
    text = f"{view.name} {stages.describe(view.stage)}" + (f" ({rate})" if rate else "")
    if view.helper is not None:
        text += f", where process {view.helper.state.pid} that it started works ({activity.rate(view.helper.state.progress) or 'it moves'})"
    text += f", {left[1]}, about {left[0]:.0f} s left" if left else ""
    rest = f"; {len(moving) - 1} more move too" if len(moving) > 1 else ""
    return f"slow, not hung: {text}{rest}"


def slow_storage(scene: Scene) -> List[Claim]:
    """Weights that come, but slowly: no hang, and still worth a word."""
    found = []
    for view in scene.ranks:
        progress = view.state.progress
        if view.stage not in ("load-weights", "download") or view.verdict != "progressing" or progress is None:
            continue
        rate = max(progress.read_bytes, progress.rchar) / progress.window_s if progress.window_s > 0 else 0.0
        if 0 < rate < _SLOW_BYTES_S and not activity.computes(progress):
            text = f"{view.name} gets its weights at {rate / 1e6:.1f} MB/s"
            found.append(
                claim(
                    "storage-slow",
                    POSSIBLE,
                    text,
                    [Evidence(f"/proc/{view.state.pid}/io on {view.state.node}", text)],
                    where={"node": view.state.node, "rank": view.rank, "stage": view.stage},
                )
            )
    return found
