"""From saved JSON back to a result. Whatever the file holds, it is either understood or refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ncdiag.hang.verdict import Fold, Printed, RankVerdict, Wait
from ncdiag.model import CONFIDENCES, SCHEMA, Cause, Evidence, Finding, Status
from ncdiag.report.measured import events, facts, lanes, outcome, pairs, said, steps
from ncdiag.report.plainly import number, text, whole
from ncdiag.report.result import Result
from ncdiag.report.run import now, of_data

T = TypeVar("T")
KEYS = ("findings", "causes", "machines", "timeline", "rows", "files")
"""One of these makes a JSON object a result."""


def result_of(data: Any, source: str) -> Result:
    """The result in the JSON contract's shape. Raises ValueError: one sentence, without the file's name."""
    if not isinstance(data, Mapping) or not isinstance(data.get("command"), str):
        raise ValueError('not a result of ncdiag (no "command")')
    if data.get("schema") != SCHEMA:
        raise ValueError(f"a result of schema {data.get('schema')!r:.20}; this ncdiag reads {SCHEMA}")
    if not any(isinstance(data.get(key), (list, dict)) for key in KEYS):
        raise ValueError(f"the result of `{text(data['command'])}` holds neither findings nor causes")
    return Result(
        text(data["command"]),
        whole(data.get("exit")) or 0,
        [text(node) for node in _list(data, "nodes")],
        _each(data, "findings", _finding),
        _each(data, "causes", _cause),
        text(data.get("verdict")) if isinstance(data.get("verdict"), str) else "",
        text(data.get("summary")) if isinstance(data.get("summary"), str) else "",
        _each(
            {"ranks": [one for one in _list(data, "ranks") if isinstance(one, dict) and "stage" in one]}, "ranks", _rank
        ),
        _each(data, "waits", lambda one: Wait(text(one.get("waiter")), text(one.get("target")), text(one.get("how")))),
        _each(data, "folds", _fold),
        _each(data, "communicators", dict),
        [text(step) for step in _list(data, "next")],
        [text(note) for note in [*_list(data, "not_read"), *_list(data, "notes")]],
        _each(data, "machines", dict),
        lanes(data),
        events(data),
        pairs(data),
        steps(data),
        outcome(data),
        facts(data),
        source,
        [*_each(data, "printed", _printed), *said(data)],
        [text(one) for one in _list(data, "asked")],
        of_data(data),
    )


def of_json(text: str) -> Result:
    """The result of a command that has just written this JSON."""
    return result_of(json.loads(text), "")


def of_causes(
    command: str,
    causes: Sequence[Cause],
    ranks: Sequence[Any],
    communicators: Sequence[Any],
    next_: Sequence[str],
    notes: Sequence[str],
    code: int,
) -> Result:
    """What logs led to; `ranks` and `communicators` in the shape of the JSON contract."""
    return Result(
        command,
        int(code),
        causes=list(causes),
        ranks=[_rank(rank) for rank in ranks],
        communicators=list(communicators),
        next=list(next_),
        notes=list(notes),
        run=now(),
    )


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    found = data.get(key)
    return found if isinstance(found, list) else []


def _each(data: Mapping[str, Any], key: str, make: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """Raises ValueError with the place of the first entry that cannot be understood."""
    made = []
    for index, one in enumerate(_list(data, key)):
        try:
            made.append(make(one))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise ValueError(f"{key}[{index}] is damaged ({error})") from None
    return made


def _finding(data: Mapping[str, Any]) -> Finding:
    return Finding(
        Status(data["status"]),
        text(data["summary"]),
        {text(key): value for key, value in (data.get("where") or {}).items()},
        data.get("observed"),
        data.get("expected"),
        text(data.get("source") or ""),
        _optional(data, "cause"),
        _optional(data, "remedy"),
        text(data.get("probe") or ""),
        text(data.get("unit") or ""),
    )


def _cause(data: Mapping[str, Any]) -> Cause:
    if data["confidence"] not in CONFIDENCES:
        raise ValueError(f"confidence {data['confidence']!r:.40}")
    return Cause(
        text(data["cause"]),
        data["confidence"],
        text(data["summary"]),
        {text(key): value for key, value in (data.get("where") or {}).items()},
        list(map(_evidence, _list(data, "evidence"))),
        list(map(_evidence, _list(data, "secondary"))),
        text(data.get("remedy") or ""),
        list(map(_evidence, _list(data, "also_seen"))),
    )


def _evidence(data: Mapping[str, Any]) -> Evidence:
    return Evidence(text(data["source"]), text(data["text"]), whole(data.get("line")))


def _rank(data: Mapping[str, Any]) -> RankVerdict:
    words = {
        key: text(data.get(key) or "") for key in ("role", "state", "stage", "waits_for", "why", "note", "rate", "name")
    }
    return RankVerdict(
        node=_optional(data, "node"),
        pid=whole(data.get("pid")),
        rank=whole(data.get("rank")),
        since_s=number(data.get("since_s")),
        left_s=number(data.get("left_s")),
        culprit=data.get("culprit") is True,
        **words,
    )


def _fold(data: Mapping[str, Any]) -> Fold:
    return Fold(_texts(data["ranks"]), _texts(data["frames"]), data.get("odd") is True)


def _printed(data: Mapping[str, Any]) -> Printed:
    return Printed(text(data["name"]), text(data["source"]), _texts(data["lines"]), whole(data.get("after")) or 0)


def _texts(items: Iterable[Any]) -> list[str]:
    return [text(item) for item in items]


def _optional(data: Mapping[str, Any], key: str) -> str | None:
    return None if data.get(key) is None else text(data[key])
