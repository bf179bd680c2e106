"""Rank states in, verdict out. Pure: no clock, no machine, no environment; the order of the states does not matter."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ncdiag import stages
from ncdiag.explain import brings_about
from ncdiag.hang import (
    activity,
    cluster_rules,
    count_rules,
    group_rules,
    listen_rules,
    network_rules,
    rank_rules,
    store_rules,
)
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, claim, names, numbers, seen
from ncdiag.hang.fold import folds
from ncdiag.hang.remaining import remaining
from ncdiag.hang.scene import Scene, View, make_scene
from ncdiag.hang.verdict import RankVerdict, Verdict, Wait
from ncdiag.model import CONFIDENCES, Cause, Evidence, RankState
from ncdiag.processes.denied import DENIED

RULES = (
    rank_rules.stopped,
    store_rules.layout,
    network_rules.unanswered,
    listen_rules.queues,
    listen_rules.groups,
    store_rules.meeting,
    network_rules.lookups,
    cluster_rules.placement,
    rank_rules.dead,
    rank_rules.orphaned,
    count_rules.recorder_says,
    count_rules.ras_says,
    rank_rules.outside,
    group_rules.different_calls,
    network_rules.silent_link,
    group_rules.behind,
)
"""Every rule sees the whole scene; of equally sure causes the earlier rule's comes first."""

SILENT_S = 1.0
"""A log that grew within the last second says nothing about how long a rank has been where it is."""
_SAYS_LITTLE = ("healthy", "slow-not-hung", "unresolved")
"""What a log says of these proves nothing against what processes do now."""


def infer(states: Sequence[RankState], *, ras: Optional[Sequence[Mapping[str, Any]]] = None,
          flight: Optional[Mapping[int, Mapping[str, Any]]] = None,
          logs: Optional[Sequence[Cause]] = None) -> Verdict:
    """Which rank holds up the others, and why.

    `states`: every process of the engine that could be looked at, of one node or of several. `ras`: NCCL RAS reports in
    the shape of its JSON (`communicators` -> `ranks`, `missing_ranks`), one a process that was asked. `flight`: global
    rank -> flight-recorder dump (`pg_config`, `pg_status`, `entries`). `logs`: what the log rules concluded. Never
    raises on odd states; what is missing lowers the confidence. `causes` is never empty: where nothing is wrong its only
    entry is `healthy` or `slow-not-hung`, where nothing can be said `unresolved`.
    """
    scene = make_scene(states, ras, flight, logs)
    picture = Picture(scene)
    claims = [found for rule in RULES for found in rule(scene, picture)]
    told = [Claim(cause) for cause in scene.logs if cause.cause not in _SAYS_LITTLE]
    calm = _calm(scene, claims)
    if calm is not None:
        sure = calm.cause.confidence != POSSIBLE
        ranked = [calm, *_rank(told)] if sure else _rank([*told, calm])
    else:
        ranked = _rank([*claims, *told]) or [_unresolved(scene)]
    return _verdict(scene, ranked)


def _calm(scene: Scene, claims: Sequence[Claim]) -> Optional[Claim]:
    """Nobody holds anybody up: all are ready, or those that the others wait for are moving."""
    if any(found.cause.confidence != POSSIBLE for found in claims) or not scene.views:
        return None
    members = scene.ranks or scene.views
    if any(view.verdict in ("dead", "stopped") for view in members):
        return None
    open_question = any(view.verdict in ("stuck", "unknown") for view in members)
    moving = [view for view in (*scene.ranks, *(view for view in scene.managers if not scene.ranks or scene.absent))
              if view.verdict == "progressing"]
    if moving and not any(found.culprits for found in claims):
        return claim("slow-not-hung", POSSIBLE if open_question else LIKELY, _moving(moving), [seen(view) for view in moving[:4]],
                     where={"stage": min((view.stage for view in moving), key=stages.order)})
    serving = [view for view in members if view.stage in ("ready", "ray-actor")]
    busy = any(view.stage == "engine-init" or view.stage.startswith("wait") or view.stage == "message-queues"
               for view in scene.managers)
    if serving and len(serving) == len(members) and not busy and not claims:
        text = f"{len(serving)} of {scene.world_size or len(members)} ranks are ready and wait for work"
        return claim("healthy", POSSIBLE if scene.absent else LIKELY, text, [seen(view) for view in serving[:2]], where={})
    return None


def _moving(moving: Sequence[View]) -> str:
    view = moving[0]
    rate = activity.rate(view.state.progress)
    left = remaining(view.state.log_tail)
    text = f"{view.name} {stages.describe(view.stage)}" + (f" ({rate})" if rate else "")
    text += f", {left[1]}, about {left[0]:.0f} s left" if left else ""
    rest = f"; {len(moving) - 1} more move too" if len(moving) > 1 else ""
    return f"slow, not hung: {text}{rest}"


def _rank(claims: Sequence[Claim]) -> List[Claim]:
    """The surest first, then in the order of the rules; one entry a cause, what follows from another after it."""
    merged: Dict[str, Claim] = {}
    for found in sorted(claims, key=lambda item: -CONFIDENCES.index(item.cause.confidence)):
        if found.cause.cause in merged:
            _merge(merged[found.cause.cause], found)
        else:
            merged[found.cause.cause] = found
    ranked = list(merged.values())
    heads = [found for found in ranked if not _follows(found, ranked)] or ranked[:1]
    for found in ranked:
        if found not in heads:
            heads[0].cause.secondary.extend(item for item in found.cause.evidence[:2]
                                            if item not in heads[0].cause.secondary)
            heads[0].waits.extend(wait for wait in found.waits if wait not in heads[0].waits)
    return heads


def _follows(found: Claim, ranked: Sequence[Claim]) -> bool:
    weight = CONFIDENCES.index(found.cause.confidence)
    return any(other is not found and brings_about(other.cause.cause, found.cause.cause)
               and not brings_about(found.cause.cause, other.cause.cause)
               and CONFIDENCES.index(other.cause.confidence) >= max(weight, 1) for other in ranked)


def _merge(kept: Claim, other: Claim) -> None:
    kept.cause.evidence.extend(item for item in other.cause.evidence if item not in kept.cause.evidence)
    kept.waits.extend(wait for wait in other.waits if wait not in kept.waits)
    if other.cause.confidence == kept.cause.confidence:
        kept.culprits.extend(view for view in other.culprits if view not in kept.culprits)
        kept.absent.extend(number for number in other.absent if number not in kept.absent)


def _unresolved(scene: Scene) -> Claim:
    if not scene.views:
        return claim("unresolved", POSSIBLE, "no process of the engine was seen", where={})
    denied = [view for view in scene.views if not view.state.threads and DENIED in (view.state.stack_error or "")]
    if denied and all(view in denied or view.verdict == "dead" for view in scene.views):
        return claim("ptrace-denied", SURE, f"the stacks of {names(denied)} may not be read here, so nothing can be said of them",
                     [Evidence(denied[0].name, denied[0].state.stack_error or "")], where={"node": denied[0].state.node})
    waiting = [view for view in scene.ranks if view.witness]
    if waiting:
        return claim("unresolved", POSSIBLE, f"{names(waiting)} wait, and nothing that was read shows for whom",
                     [seen(view) for view in waiting[:4]], where={"stage": waiting[0].stage})
    return claim("unresolved", POSSIBLE, "what was read of the processes does not show what they do",
                 [Evidence(view.name, view.state.stack_error or view.state.state) for view in scene.views[:4]], where={})


def _verdict(scene: Scene, ranked: Sequence[Claim]) -> Verdict:
    first = ranked[0]
    rows = [_row(view, view in first.culprits, first.waits) for view in scene.views]
    rows += [_absent_row(scene, number, number in first.absent) for number in scene.absent]
    summary = first.cause.summary
    return Verdict(_kind(scene, first), summary, [found.cause for found in ranked], rows, first.waits,
                   folds(scene.ranks), _communicators(scene), _next(scene, first))


def _kind(scene: Scene, first: Claim) -> str:
    slug = first.cause.cause
    if slug in ("healthy", "slow-not-hung"):
        return "healthy" if slug == "healthy" else "progressing"
    ranks = scene.ranks or scene.views
    if ranks and all(view.verdict == "dead" for view in ranks):
        return "failed"
    if slug in ("unresolved", "ptrace-denied"):
        return "unknown"
    return "hang" if any(view.verdict in ("waiting", "stuck", "stopped") for view in scene.views) else "failed"


def _row(view: View, culprit: bool, waits: Sequence[Wait]) -> RankVerdict:
    state = view.state
    row = RankVerdict(state.node, state.pid, state.role, view.rank, view.verdict, view.stage, name=view.name)
    row.culprit, row.note, row.rate = culprit, view.match.detail, activity.rate(state.progress)
    targets = [wait.target for wait in waits if wait.waiter == view.name]
    if targets:
        row.waits_for = ", ".join(dict.fromkeys(targets))
    elif view.waiting and view.verdict in ("waiting", "stuck", "unknown"):
        row.waits_for = stages.WAITING[view.waiting]
    frame = view.match.why
    row.why = f"{frame.name} ({frame.file}:{frame.line})" if frame is not None else view.state.stack_error or ""
    if view.verdict in ("waiting", "stuck", "stopped") and (state.silent_s or 0.0) >= SILENT_S:
        row.since_s = state.silent_s
    left = remaining(view.state.log_tail) if view.verdict == "progressing" else None
    row.left_s = left[0] if left else None
    return row


def _absent_row(scene: Scene, number: int, culprit: bool) -> RankVerdict:
    note = "never came" if culprit else "not seen here"
    return RankVerdict(None, None, "worker", number, "missing" if culprit else "unknown", "unknown", note=note,
                       culprit=culprit, name=f"rank {number}")


def _communicators(scene: Scene) -> List[Dict[str, Any]]:
    found = []
    for report in scene.ras:
        for comm in report.get("communicators") or ():
            counts = {rank.get("rank"): rank.get("collective_counts") for rank in comm.get("ranks") or ()}
            found.append({"name": comm.get("hash"), "size": comm.get("size"), "counts": counts,
                          "missing": [rank.get("rank") for rank in comm.get("missing_ranks") or ()]})
    return found


def _next(scene: Scene, first: Claim) -> List[str]:
    """What would make the answer surer."""
    steps: List[str] = []
    if first.cause.confidence == "sure" or (first.cause.cause in _SAYS_LITTLE[:2] and not scene.absent):
        return steps
    if scene.absent:
        steps.append(f"the same dump on the nodes of {numbers(scene.absent)}")
    denied = [view for view in scene.views if not view.state.threads and view.verdict != "dead"]
    if denied:
        steps.append(f"stacks of {names(denied)} ({denied[0].state.stack_error or 'none were read'})")
    if any(view.state.progress is None for view in scene.ranks if view.verdict != "dead"):
        steps.append("a dump with a window (--window 3) to tell slow from stuck")
    if not any(view.state.sockets for view in scene.views):
        steps.append("sockets of the ranks, from inside their network namespace")
    if not scene.logs:
        steps.append("the logs of all ranks (ncdiag diagnose FILE…)")
    return steps
