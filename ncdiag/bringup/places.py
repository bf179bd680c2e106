"""Where a cause is: node, rank and stage, by the lines that it rests on (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bringup.output import NAME
from ncdiag.bringup.timeline import Row, Timeline
from ncdiag.model import Cause, Evidence

RAY_LINES = 40
"""How many lines above its last one Ray's header of an error that a task raised is looked for."""
_RAY_TASK = re.compile(r"RayTaskError.*ray::[^\n]*?\(pid=\d+, ip=(?P<address>[0-9a-fA-F.:]+)")


def place(
    cause: Cause, timeline: Timeline, answers: Sequence[Mapping[str, Any]], logs: Mapping[str, Sequence[str]]
) -> None:
    """Adds node and rank where the lines that the cause rests on say them. `answers`: of a look; the command itself runs on the node of the first."""
    if cause.cause == "rank-missing":
        return  # it is where nothing is said
    nodes = [answer["node"] for answer in answers]
    if "node" not in cause.where and (address := _raised_at(cause, logs)):
        cause.where = {key: value for key, value in cause.where.items() if key not in ("pid", "rank")}
        cause.where["node"] = next((a["node"] for a in answers if a.get("address") == address), address)
        return
    _by_rank(cause, timeline)
    for item in cause.evidence:
        told = item.source.partition(":")[0]
        told = told if told in nodes else ""
        row = _row_of(item, told, timeline)
        if row is not None and _agrees(cause, row):
            cause.where.setdefault("node", row.node)
            if row.rank is not None:
                cause.where.setdefault("rank", row.rank)
            if row.spans:
                cause.where.setdefault("stage", row.spans[-1][0])
            break
        if row is None and (told or (item.source == NAME and nodes and " ip=" not in item.text[:120])):
            cause.where.setdefault("node", told or nodes[0])
    if len(set(nodes)) == 1:
        cause.where.setdefault("node", nodes[0])


def _raised_at(cause: Cause, logs: Mapping[str, Sequence[str]]) -> str:
    """The address of the node where Ray says that the error was raised, which then shows in the log of the process that asked; else empty."""
    item = cause.evidence[0] if cause.evidence else None
    if item is None or item.line is None or item.source not in logs:
        return ""
    for line in reversed(logs[item.source][max(item.line - RAY_LINES, 0) : item.line]):
        if match := _RAY_TASK.search(line):
            return match["address"]
    return ""


def _by_rank(cause: Cause, timeline: Timeline) -> None:
    """A rank that the cause names is on one node."""
    homes = {row.node for row in timeline.rows if row.rank is not None and row.rank == cause.where.get("rank")}
    if len(homes) == 1:
        cause.where.setdefault("node", homes.pop())


def _row_of(item: Evidence, node: str, timeline: Timeline) -> Row | None:
    """The process whose line it is, where its mark says that; two nodes may each have one of that number."""
    match = re.search(r"\bpid=(\d+)", item.text[:100])
    rows = [row for row in timeline.rows if match and row.pid == int(match[1]) and node in ("", row.node)]
    return rows[0] if len({row.node for row in rows}) == 1 else None


def _agrees(cause: Cause, row: Row) -> bool:
    where = cause.where
    return where.get("node", row.node) == row.node and (row.rank is None or where.get("rank", row.rank) == row.rank)
