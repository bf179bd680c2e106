"""Rank states in, verdict out. Pure: no clock, no machine, no environment; the order of the states does not matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ncdiag.explain import EVIDENCE_LIMIT, ONLY_SLOWS, brings_about
from ncdiag.hang import (
    cluster_rules,
    count_rules,
    group_rules,
    listen_rules,
    lock_rules,
    network_rules,
    outside_rules,
    rank_rules,
    store_rules,
)
from ncdiag.hang.addresses import Picture
from ncdiag.hang.calm import calm, counts_on, slow_storage
from ncdiag.hang.claims import LIKELY, POSSIBLE, SURE, Claim, claim, everybody, names, seen
from ncdiag.hang.company import make_scene
from ncdiag.hang.idle import lonely
from ncdiag.hang.rows import verdict_of
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.settled import settled
from ncdiag.hang.verdict import Verdict
from ncdiag.model import CONFIDENCES, Cause, Evidence, RankState
from ncdiag.processes.denied import DENIED
from ncdiag.stages.order import PEERS, STORE

RULES = (
    rank_rules.stopped,
    rank_rules.stopped_helper,
    store_rules.layout,
    network_rules.unanswered,
    listen_rules.queues,
    listen_rules.groups,
    store_rules.meeting,
    store_rules.launchers,
    network_rules.lookups,
    cluster_rules.placement,
    cluster_rules.results,
    rank_rules.dead,
    rank_rules.orphaned,
    count_rules.recorder_says,
    lock_rules.file_locks,
    lock_rules.thread_locks,
    outside_rules.outside,
    count_rules.ras_says,
    group_rules.nobody_answers,
    store_rules.asked_in_vain,
    group_rules.different_calls,
    network_rules.silent_link,
    group_rules.behind,
    rank_rules.stopped_launcher,
)
"""Every rule sees the whole scene; of equally sure causes the earlier rule's comes first."""

_MAY_END = ("rdma-unavailable", "env-unknown-or-invalid")
"""What logs say of these, and of what only slows, is true of jobs that work, too, and holds nobody up; these may end a rank, where that is sure."""
_FACTS = ("rank-stopped", "rank-died", "rank-missing")
_SAYS_LITTLE = ("healthy", "slow-not-hung", "unresolved")
"""What a log says of these proves nothing against what processes do now."""


def infer(
    states: Sequence[RankState],
    *,
    ras: Optional[Sequence[Mapping[str, Any]]] = None,
    flight: Optional[Mapping[int, Mapping[str, Any]]] = None,
    logs: Optional[Sequence[Cause]] = None,
) -> Verdict:
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
    claims, going = _while_it_counts(scene, claims)
    rest = going or calm(scene, claims)
    beside = [cause for cause in scene.logs if _only_slows(cause, bool(claims) or rest is not None)]
    told = [Claim(cause) for cause in scene.logs if cause.cause not in _SAYS_LITTLE and cause not in beside]
    if rest is not None:
        told += [*slow_storage(scene), *(found for found in claims if going or found.cause.cause == "rank-stopped")]
        ranked = [rest, *_rank(told)] if rest.cause.confidence != POSSIBLE else _rank([rest, *told])
    else:
        ranked = _rank([*claims, *told]) or [_unresolved(scene)]
    ranked += _rank([_beside(cause) for cause in beside])
    kept = settled([found.cause for found in ranked], scene.logs)
    return verdict_of(scene, [found for found in ranked if any(found.cause is cause for cause in kept)])


def _while_it_counts(scene: Scene, claims: List[Claim]) -> Tuple[List[Claim], Optional[Claim]]:
    """What looks stuck in a job whose log counts on is only possibly so; a stopped or ended process stays what it is."""
    going = counts_on(scene)
    if going is None or any(found.cause.cause in _FACTS and (found.culprits or found.absent) for found in claims):
        return claims, None
    return [replace(found, cause=replace(found.cause, confidence=POSSIBLE)) for found in claims], going


def _only_slows(cause: Cause, explained: bool) -> bool:
    return cause.cause in ONLY_SLOWS or (cause.cause in _MAY_END and (explained or cause.confidence != SURE))


def _beside(cause: Cause) -> Claim:
    """What only slows a job is told after what holds it up, and claims no more than that it may matter."""
    return Claim(replace(cause, confidence=POSSIBLE if cause.confidence == LIKELY else cause.confidence))


def _rank(claims: Sequence[Claim]) -> List[Claim]:
    """The surest first, then in the order of the rules; one entry a cause, what follows from another after it."""
    merged: Dict[str, Claim] = {}
    for found in sorted(claims, key=lambda item: -CONFIDENCES.index(item.cause.confidence)):
        if found.cause.cause in merged:
            _merge(merged[found.cause.cause], found)
        else:
            merged[found.cause.cause] = found
    ranked = list(merged.values())
    if any(found.cause.confidence != POSSIBLE for found in ranked):
        ranked = [found for found in ranked if found.cause.cause != "unresolved"]
    heads = [found for found in ranked if not _follows(found, ranked)] or ranked[:1]
    for found in ranked:
        if found not in heads:
            heads[0].cause.secondary.extend(
                item for item in found.cause.evidence[:2] if item not in heads[0].cause.secondary
            )
            heads[0].waits.extend(wait for wait in found.waits if wait not in heads[0].waits)
    return heads


def _follows(found: Claim, ranked: Sequence[Claim]) -> bool:
    weight = CONFIDENCES.index(found.cause.confidence)
    return any(
        other is not found
        and brings_about(other.cause.cause, found.cause.cause)
        and not brings_about(found.cause.cause, other.cause.cause)
        and CONFIDENCES.index(other.cause.confidence) >= max(weight, 1)
        for other in ranked
    )


def _merge(kept: Claim, other: Claim) -> None:
    if len(kept.cause.evidence) < EVIDENCE_LIMIT:
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
        return claim(
            "ptrace-denied",
            SURE,
            f"the stacks of {names(denied)} may not be read here, so nothing can be said of them",
            [Evidence(denied[0].name, denied[0].state.stack_error or "")],
            where={"node": denied[0].state.node},
        )
    alone = lonely(scene.ranks or scene.views)
    if alone is not None:
        return alone
    waiting = [view for view in scene.ranks if view.witness]
    if waiting:
        return claim(
            "unresolved",
            POSSIBLE,
            _all_wait(scene, waiting) or f"{names(waiting)} wait, and nothing that was read shows for whom",
            [seen(view) for view in waiting[:4]],
            where={"stage": waiting[0].stage},
        )
    return claim(
        "unresolved",
        POSSIBLE,
        "what was read of the processes does not show what they do",
        [Evidence(view.name, view.state.stack_error or view.state.state) for view in scene.views[:4]],
        where={},
    )


def _all_wait(scene: Scene, waiting: Sequence[View]) -> str:
    """Of a whole group that waits at the store, or in collectives, in words; else empty."""
    if scene.absent or len(waiting) < max(len(scene.ranks), 2) or any(view.stage == "rendezvous" for view in waiting):
        return ""
    if all(view.waiting == STORE for view in waiting):
        return f"{everybody(waiting)} for a key of the store, and none of them is left to set one"
    if all(view.waiting == PEERS and view.stage == "collective" for view in waiting):
        called = {view.match.detail for view in waiting}
        where = called.pop() if len(called) == 1 and all(called) else "collectives"
        return (
            f"{everybody(waiting)} in {where}, none is missing, and nothing that was read shows why it does not end: different groups, "
            "another call left out before, or something sent that never came"
        )
    return ""
