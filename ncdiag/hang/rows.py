"""From what the rules found to the verdict: its rows, its kind, and what would tell more."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.hang.claims import Claim, names, numbers
from ncdiag.hang.fold import folds
from ncdiag.hang.grounds import unsure
from ncdiag.hang.lock_rules import lock_in_words
from ncdiag.hang.printed import printed
from ncdiag.hang.remaining import remaining
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import RankVerdict, Verdict, Wait

SILENT_S = 1.0
"""A log that grew within the last second says nothing about how long a rank has been where it is."""


def verdict_of(scene: Scene, ranked: Sequence[Claim]) -> Verdict:
    """`ranked`: at least one claim, best first."""
    first = ranked[0]
    rows = [_row(view, view in first.culprits, first.waits) for view in scene.views]
    rows += [_absent_row(scene, number, number in first.absent) for number in scene.absent]
    summary = first.cause.summary
    kind = _kind(scene, first)
    return Verdict(
        kind,
        summary,
        [found.cause for found in ranked],
        rows,
        first.waits,
        folds(scene.ranks),
        _communicators(scene),
        _next(scene, first),
        printed(scene, first.culprits) if kind in ("hang", "unknown", "failed") else [],
    )


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


LONGEST_S = 60
"""The longest window of a dump."""
DECIDING_S = 40
"""A window in which who does not run at all is seen not to run for `grounds.LONG_S`, whatever the kernel tells of the time before."""


def _to_tell_late_from_stuck(scene: Scene) -> List[str]:
    window_s = max((view.state.progress.window_s for view in scene.views if view.state.progress is not None), default=0)
    longer = next((seconds for seconds in (DECIDING_S, LONGEST_S) if seconds > window_s + 1), None)
    steps = [f"a longer look, to tell late from stuck: --window {longer}"] if longer else []
    if not scene.flight and any("DEBUG_INFO_PIPE_FILE" in name for view in scene.views for name in view.state.settings):
        steps.append("what the ranks counted themselves, twice a minute apart: --ask-recorder")
    return steps


def _row(view: View, culprit: bool, waits: Sequence[Wait]) -> RankVerdict:
    state = view.state
    row = RankVerdict(state.node, state.pid, state.role, view.rank, view.verdict, view.stage, name=view.name)
    row.culprit, row.note, row.rate = culprit, view.match.detail, activity.rate(state.progress)
    targets = [wait.target for wait in waits if wait.waiter == view.name]
    if targets:
        row.waits_for = ", ".join(dict.fromkeys(targets))
    elif state.lock:
        row.waits_for = lock_in_words(view)
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
    return RankVerdict(
        None,
        None,
        "worker",
        number,
        "missing" if culprit else "unknown",
        "unknown",
        note=note,
        culprit=culprit,
        name=f"rank {number}",
    )


def _communicators(scene: Scene) -> List[Dict[str, Any]]:
    found = []
    for report in scene.ras:
        for comm in report.get("communicators") or ():
            counts = {rank.get("rank"): rank.get("collective_counts") for rank in comm.get("ranks") or ()}
            found.append(
                {
                    "name": comm.get("hash"),
                    "size": comm.get("size"),
                    "counts": counts,
                    "missing": [rank.get("rank") for rank in comm.get("missing_ranks") or ()],
                }
            )
    return found


def _next(scene: Scene, first: Claim) -> List[str]:
    """What would make the answer surer."""
    steps: List[str] = []
    if first.cause.confidence == "sure" or (first.cause.cause in ("healthy", "slow-not-hung") and not scene.absent):
        return steps
    if scene.absent:
        steps.append(f"the same dump on the nodes of {numbers(scene.absent)}")
    denied = [view for view in scene.views if not view.state.threads and view.verdict != "dead"]
    if denied:
        steps.append(f"stacks of {names(denied)} ({denied[0].state.stack_error or 'none were read'})")
    if any(view.state.progress is None for view in scene.ranks if view.verdict != "dead"):
        steps.append("a dump with a window (--window 3) to tell slow from stuck")
    if first.cause.confidence == "possible" and any(map(unsure, first.culprits)):
        steps += _to_tell_late_from_stuck(scene)
    group = len(scene.views) > 1 or any(view.rank is not None for view in scene.views)
    if group and not any(view.state.sockets for view in scene.views):
        steps.append("sockets of the ranks, from inside their network namespace")
    if not scene.logs:
        steps.append("the logs of all ranks (ncdiag diagnose FILE…)")
    if first.cause.cause == "unresolved" and not steps:
        steps += ["a longer look, to tell slow from stuck: --window 20", "native frames of every process: --native all"]
    return steps
