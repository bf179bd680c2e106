"""What was measured, out of saved JSON: the timeline of a start-up, the pairs and sizes of a bandwidth run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ncdiag.exits import of_outcome
from ncdiag.hang.verdict import Printed
from ncdiag.report.plainly import brief, number, seconds, text, whole
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
    "ended": "It ended, and nothing had come up",
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
    """Of a start that came up: first answer, KV cache, network. Of a bandwidth run: what is expected and why, and what it means."""
    check, summary = data.get("check"), data.get("summary")
    made = [*_expectation(data), *_engine(data)]
    if isinstance(check, Mapping) and (latency := number(check.get("latency_s"))) is not None:
        made.append(
            Fact("First answer", seconds(latency), f"a completion by {text(check.get('model') or 'the model')}")
        )
    if isinstance(summary, Mapping):
        cache = summary.get("kv_cache")
        if isinstance(cache, Mapping) and cache.get("sentence"):
            made.append(Fact("KV cache", text(cache["sentence"]), "the engine's log"))
        if summary.get("network"):
            made.append(Fact("Between nodes", text(summary["network"]), "NCCL's log, or the sockets of the ranks"))
        for one in _objects(summary.get("warnings")):
            made.append(Fact("Mind", text(one.get("summary") or one.get("cause") or ""), "the engine's log"))
    return made


def of_timeline(file: Mapping[str, Any]) -> dict[str, Any]:
    """The file of `bringup --timeline` in the shape of a start's JSON; how it ended is its last event."""
    start = {"schema": file.get("schema"), "command": "bringup", "run": file.get("run"), "timeline": file}
    for one in reversed(_objects(file.get("events"))):
        event = one.get("event")
        if isinstance(event, str) and event in _OUTCOMES:
            return {**start, "outcome": event, "took_s": one.get("at_s"), "exit": int(of_outcome(event))}
    return start


def _expectation(data: Mapping[str, Any]) -> Iterator[Fact]:
    expectation = data.get("expectation")
    if not isinstance(expectation, Mapping):
        return
    expected = number(expectation.get("busbw_gbytes_s"))
    if expected is not None:
        yield Fact(
            "Expected",
            f"{expected:.4g} GB/s at large sizes: {text(expectation.get('bound') or '')}",
            "the factors below",
        )
    elif expectation.get("why"):
        yield Fact("Expected", "not known", text(expectation["why"]))
    if expectation.get("chosen"):
        yield Fact("NCCL chose", text(expectation["chosen"]), "NCCL's log of the run")
    for term in _objects(expectation.get("terms")):
        value = number(term.get("value"))
        if value is not None:
            yield Fact(
                text(term.get("what") or ""),
                f"{value:.4g} {text(term.get('unit') or '')}".strip(),
                text(term.get("source") or ""),
            )


def _engine(data: Mapping[str, Any]) -> Iterator[Fact]:
    for one in _objects(data.get("engine")):
        took, share = number(one.get("communication_s")), number(one.get("share"))
        if took is not None:
            told = f"{brief(took)} of communication" + (f", {share:.0%} of it" if share is not None else "")
            yield Fact(
                f"{text(one.get('layout') or '')} {text(one.get('what') or '')}".strip(),
                told,
                "the model's shape and the bandwidth measured",
            )


LINES = 20
"""Last lines of a rank's log that a report shows."""


def said(data: Mapping[str, Any]) -> list[Printed]:
    """Of a bandwidth run, `logs`: what ranks that failed printed last."""
    logs = data.get("logs")
    told = {text(rank): text(log).splitlines() for rank, log in logs.items()} if isinstance(logs, Mapping) else {}
    return [Printed(f"rank {rank}", "its log", lines[-LINES:]) for rank, lines in told.items() if lines]


def pairs(data: Mapping[str, Any]) -> list[Pair]:
    """Of `isolation.tests`: every pair over all its NICs, against what is usual among them."""
    isolation = data.get("isolation")
    if not isinstance(isolation, Mapping):
        return []
    usual, made = number(isolation.get("usual_busbw_gbytes_s")), []
    for one in _objects(isolation.get("tests")):
        ends = one.get("nodes")
        if isinstance(ends, list) and len(ends) == 2 and one.get("rail") is None:
            figure = number(one.get("busbw_gbytes_s"))
            note = f"stuck in {text(one['stage'])}" if one.get("stage") else "stuck" if figure is None else ""
            made.append(Pair(text(ends[0]), text(ends[1]), figure, usual, note))
    return made


def steps(data: Mapping[str, Any]) -> list[Step]:
    """Of `rows`, and of the rows of result files that were read: operations by size."""
    files = data.get("files")
    sources = (
        {"": data, **{text(name): one for name, one in files.items()}} if isinstance(files, Mapping) else {"": data}
    )
    made = []
    for name, source in sources.items():
        for one in _objects(source.get("rows") if isinstance(source, Mapping) else None):
            size, busbw = whole(one.get("size_bytes")), number(one.get("busbw_gbytes_s"))
            if size is not None and busbw is not None:
                width = number(one.get("busbw_half_width_gbytes_s"))
                made.append(
                    Step(
                        text(one.get("op") or ""),
                        size,
                        one.get("in_place") is True,
                        busbw,
                        width,
                        whole(one.get("wrong")),
                        name,
                    )
                )
    return made


def _objects(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
