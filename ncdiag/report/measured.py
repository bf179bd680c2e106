"""What was measured, out of saved JSON: the timeline of a start-up, the pairs and sizes of a bandwidth run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ncdiag.report.plainly import number, seconds, text, whole
from ncdiag.report.result import Event, Fact, Lane, Pair, Span, Step


def lanes(data: Mapping[str, Any]) -> list[Lane]:
    """Of `timeline.rows`: one a process, without those in which nothing was seen."""
    made = []
    for row in _objects(_timeline(data).get("rows")):
        rank, node, role = whole(row.get("rank")), text(row.get("node") or ""), text(row.get("role") or "process")
        name = role if rank is None else f"rank {rank}"
        spans = tuple(_spans(row))
        if spans:
            made.append(Lane(name, rank, node, role, spans, number(row.get("ended_s"))))
    return made


def events(data: Mapping[str, Any]) -> list[Event]:
    """Of `timeline.events`: stalls, ready, the end."""
    made = []
    for one in _objects(_timeline(data).get("events")):
        at_s = number(one.get("at_s"))
        more = ", ".join(f"{text(key)} {text(value)}" for key, value in one.items() if key not in ("at_s", "event"))
        if at_s is not None:
            made.append(Event(at_s, text(one.get("event") or ""), more))
    return made


def _timeline(data: Mapping[str, Any]) -> Mapping[str, Any]:
    found = data.get("timeline")
    return found if isinstance(found, Mapping) else {}


def _spans(row: Mapping[str, Any]) -> Iterator[Span]:
    for span in _objects(row.get("spans")):
        start, end = number(span.get("from_s")), number(span.get("to_s"))
        if start is not None and end is not None and end >= start >= 0:
            yield Span(text(span.get("stage") or "unknown"), start, end)


_OUTCOMES = {
    "ready": "The engine is up",
    "finished": "The command ended well",
    "failed": "The engine did not come up",
    "stalled": "The start stood still, and was stopped",
    "timeout": "The engine was not up in time",
    "interrupted": "The start was interrupted",
}


def outcome(data: Mapping[str, Any]) -> str:
    """How a start ended, in words; empty for results of other commands."""
    word = data.get("outcome")
    if not isinstance(word, str):
        return ""
    took = number(data.get("took_s"))
    return _OUTCOMES.get(word, word) + (f" after {seconds(took)}" if took is not None else "") + "."


def facts(data: Mapping[str, Any]) -> list[Fact]:
    """Of a start that came up: first answer, KV cache, network."""
    check, summary = data.get("check"), data.get("summary")
    made = []
    if isinstance(check, Mapping) and (latency := number(check.get("latency_s"))) is not None:
        made.append(Fact("First answer", seconds(latency), f"a completion by {text(check.get('model') or 'the model')}"))
    if isinstance(summary, Mapping):
        cache = summary.get("kv_cache")
        if isinstance(cache, Mapping) and cache.get("sentence"):
            made.append(Fact("KV cache", text(cache["sentence"]), "the engine's log"))
        if summary.get("network"):
            made.append(Fact("Between nodes", text(summary["network"]), "NCCL's log, or the sockets of the ranks"))
        for one in _objects(summary.get("warnings")):
            made.append(Fact("Mind", text(one.get("summary") or one.get("cause") or ""), "the engine's log"))
    return made


def pairs(data: Mapping[str, Any]) -> list[Pair]:
    """Of `pairs`: the two ends, GB/s, what the links promise, and why there is no figure."""
    made = []
    for one in _objects(data.get("pairs")):
        ends = one.get("nodes")
        if isinstance(ends, list) and len(ends) == 2:
            figure, expected = number(one.get("busbw_gbytes_s")), number(one.get("expected_gbytes_s"))
            made.append(Pair(text(ends[0]), text(ends[1]), figure, expected, text(one.get("note") or "")))
    return made


def steps(data: Mapping[str, Any]) -> list[Step]:
    """Of `results`: the sizes of a sweep."""
    made = []
    for one in _objects(data.get("results")):
        size, busbw = whole(one.get("size_bytes")), number(one.get("busbw_gbytes_s"))
        if size is not None and busbw is not None:
            made.append(Step(text(one.get("collective") or ""), size, busbw, number(one.get("expected_gbytes_s"))))
    return made


def _objects(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
