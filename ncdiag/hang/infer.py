"""Rank states in, verdict out. Pure: no clock, no machine, no environment; the order of the states does not matter."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from ncdiag import stages
from ncdiag.hang import activity
from ncdiag.hang.scene import Scene, View, make_scene
from ncdiag.hang.verdict import RankVerdict, Verdict, row_of
from ncdiag.model import Cause, RankState


def infer(states: Sequence[RankState], *, ras: Optional[Sequence[Mapping[str, Any]]] = None,
          flight: Optional[Mapping[int, Mapping[str, Any]]] = None,
          logs: Optional[Sequence[Cause]] = None) -> Verdict:
    """Which rank holds up the others, and why.

    `states`: every process of the engine that could be looked at, of one node or of several. `ras`: NCCL RAS reports in
    the shape of its JSON (`communicators` -> `ranks`, `missing_ranks`), one a process that was asked. `flight`: global
    rank -> flight-recorder dump (`pg_config`, `pg_status`, `entries`). `logs`: what the log rules concluded. Never
    raises on odd states; what is missing lowers the confidence.
    """
    scene = make_scene(states, ras, flight, logs)
    rows = [_row(view) for view in scene.views]
    return Verdict("unknown", _summary(scene), list(scene.logs), rows)


def _row(view: View) -> RankVerdict:
    row = row_of(view.state, view.verdict, view.stage)
    row.rate = activity.rate(view.state.progress)
    if view.waiting:
        row.waits_for = stages.WAITING[view.waiting]
    if view.match.why is not None:
        row.why = f"{view.match.why.name} ({view.match.why.file}:{view.match.why.line})"
    row.note = view.match.detail
    return row


def _summary(scene: Scene) -> str:
    parts: List[str] = [f"{view.name} {stages.describe(view.stage)}" for view in scene.ranks]
    return "; ".join(parts) or "no rank was seen"
