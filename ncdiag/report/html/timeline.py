"""The start-up as a Gantt chart: one row a process, or, of thousands, the slowest and the quickest ones and each stage's spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ncdiag.report.plain import one_line
from ncdiag.report.plainly import seconds
from ncdiag.report.result import Event, Lane, Result
from ncdiag.stages import STAGES

ROWS = 40
"""Rows that are drawn."""
QUICKEST = 4
"""Of these, how many quick ones stand beside the slow ones, to compare with."""
WIDTH = 1000
"""Units of a row's drawing, which is stretched to the page."""
TONES = 12
"""Colours of the style sheet, given to the stages that occur in their order."""
_ORDER = {stage.name: number for number, stage in enumerate(STAGES)}


def view(result: Result) -> Mapping[str, Any] | None:
    """None without a timeline."""
    lanes = result.lanes
    if not lanes:
        return None
    end = max([0.001, *(span.end_s for lane in lanes for span in lane.spans), *(event.at_s for event in result.events)])
    names = stages(lanes)
    tones = {name: number % TONES for number, name in enumerate(names)}
    chosen = _chosen(lanes)
    return {
        "rows": [_row(lane, end, tones) for lane in chosen],
        "left_out": len(lanes) - len(chosen),
        "total": len(lanes),
        "ticks": _ticks(end),
        "end": seconds(end),
        "legend": [{"name": name, "tone": tones[name]} for name in names],
        "spread": spread(lanes),
        "events": [_event(event, end) for event in result.events[:ROWS]],
    }


def _chosen(lanes: Sequence[Lane]) -> list[Lane]:
    """All, or the slowest and a few of the quickest, in their own order."""
    if len(lanes) <= ROWS:
        return list(lanes)
    by_end = sorted(range(len(lanes)), key=lambda index: (lanes[index].ended_s is None, -_done(lanes[index])))
    kept = {*by_end[: ROWS - QUICKEST], *by_end[-QUICKEST:]}
    return [lanes[index] for index in sorted(kept)]


def _done(lane: Lane) -> float:
    """When it came into its last stage: the later, the slower."""
    return lane.spans[-1].start_s


def _row(lane: Lane, end: float, tones: Mapping[str, int]) -> Mapping[str, Any]:
    bars = []
    for span in lane.spans:
        left = WIDTH * span.start_s / end
        width = max(WIDTH * span.end_s / end - left, 1.5)
        bars.append(
            {
                "x": f"{left:.1f}",
                "w": f"{width:.1f}",
                "tone": tones[span.stage],
                "title": f"{span.stage} {seconds(span.end_s - span.start_s)}",
            }
        )
    last = lane.spans[-1]
    return {
        "name": one_line(lane.name),
        "node": one_line(lane.node),
        "bars": bars,
        "ended": None
        if lane.ended_s is None
        else {"x": f"{WIDTH * min(lane.ended_s / end, 1):.1f}", "at": seconds(lane.ended_s)},
        "last": one_line(last.stage),
        "at": seconds(last.start_s),
        "said": ", ".join(one_line(bar["title"]) for bar in bars),
    }


def _ticks(end: float) -> list[Mapping[str, str]]:
    """Round times; none so near the end that its label would not fit."""
    step = 10 ** math.floor(math.log10(end))
    step = next(size for size in (step / 5, step / 2, step, step * 2) if end / size <= 6)
    return [
        {"left": f"{100 * number * step / end:.2f}", "label": f"{number * step:g} s"}
        for number in range(int(end / step) + 1)
        if number * step / end < 0.93
    ]


def spread(lanes: Sequence[Lane]) -> list[Mapping[str, Any]]:
    """Per stage, in their order: how many processes, least, median and most seconds in it, and who took the most."""
    times: dict[str, list[tuple[float, Lane]]] = {name: [] for name in stages(lanes)}
    for lane in lanes:
        own: dict[str, float] = {}
        for span in lane.spans:
            own[span.stage] = own.get(span.stage, 0.0) + span.end_s - span.start_s
        for name, took in own.items():
            times[name].append((took, lane))
    rows: list[Mapping[str, Any]] = []
    for number, (name, took_by) in enumerate(times.items()):
        every = [one for one, _ in took_by]
        most, lane = max(took_by, key=lambda item: item[0])
        who = f"{lane.name} ({lane.node})" if lane.node else lane.name
        row = {
            "stage": name,
            "tone": number % TONES,
            "count": len(every),
            "who": one_line(who) if len(every) > 1 else "",
        }
        rows.append({**row, "least": seconds(min(every)), "median": seconds(median(every)), "most": seconds(most)})
    return rows


def stages(lanes: Sequence[Lane]) -> list[str]:
    """Those that occur, in the order of a start-up; unknown ones by when they were first seen."""
    first: dict[str, float] = {}
    for span in (span for lane in lanes for span in lane.spans):
        first[span.stage] = min(first.get(span.stage, span.start_s), span.start_s)
    return sorted(first, key=lambda name: (_ORDER.get(name, len(_ORDER)), first[name]))


def _event(event: Event, end: float) -> Mapping[str, str]:
    return {
        "at": seconds(event.at_s),
        "left": f"{100 * min(event.at_s / end, 1):.2f}",
        "what": event.what,
        "more": event.more,
    }
