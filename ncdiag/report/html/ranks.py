"""The table rank × stage: culprits first, ranks that do the same in one row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.hang.verdict import RankVerdict
from ncdiag.nodeset import fold
from ncdiag.nodeset import ranks as fold_ranks
from ncdiag.report.plain import one_line
from ncdiag.report.plainly import seconds
from ncdiag.report.result import Result

CLASSES = {
    "stuck": "fail",
    "stopped": "fail",
    "dead": "fail",
    "missing": "fail",
    "progressing": "ok",
    "waiting": "skip",
}
"""Rank state -> the status whose colour it has."""
ROWS = 400
"""Rows of the table; groups beyond it are counted."""
WAITS = 100
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def view(result: Result) -> Mapping[str, Any]:
    """`rows`, `waits`, `communicators`, each with what was left out."""
    groups: dict[tuple[Any, ...], list[RankVerdict]] = {}
    for index, rank in enumerate(result.ranks):
        groups.setdefault(_key(rank, index), []).append(rank)
    rows = sorted(groups.values(), key=lambda group: (not group[0].culprit, CLASSES.get(group[0].state) != "fail"))
    return {
        "rows": [_row(group) for group in rows[:ROWS]],
        "more": max(0, len(rows) - ROWS),
        "total": len(result.ranks),
        "since": any(rank.since_s is not None for rank in result.ranks),
        "states": any(rank.state for rank in result.ranks),
        "waits": result.waits[:WAITS],
        "waits_more": max(0, len(result.waits) - WAITS),
        "communicators": [_communicator(one) for one in result.communicators[:ROWS]],
    }


def _key(rank: RankVerdict, index: int) -> tuple[Any, ...]:
    """A culprit stands alone; the others are alike when only numbers differ."""
    if rank.culprit:
        return (index,)
    alike = tuple(_NUMBER.sub("#", one) for one in (rank.waits_for, rank.why, rank.note))
    return (rank.state, rank.stage, rank.rank is None and rank.role, bool(rank.rate), *alike)


def _row(group: Sequence[RankVerdict]) -> Mapping[str, Any]:
    first = group[0]
    numbers = [rank.rank for rank in group if rank.rank is not None]
    since = sorted(rank.since_s for rank in group if rank.since_s is not None)
    left = max((rank.left_s for rank in group if rank.left_s is not None), default=None)
    return {
        "who": fold_ranks(numbers) if numbers else one_line(first.role or "process"),
        "numbered": bool(numbers),
        "count": len(group),
        "nodes": one_line(fold(rank.node for rank in group if rank.node)),
        "pid": str(first.pid) if len(group) == 1 and first.pid is not None else "",
        "state": first.state,
        "status": CLASSES.get(first.state, "unknown"),
        "stage": first.stage,
        "since": _range(since),
        "waits_for": first.waits_for,
        "rate": first.rate,
        "left": seconds(left),
        "why": first.why,
        "note": first.note,
        "culprit": first.culprit,
    }


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    least, most = seconds(values[0]), seconds(values[-1])
    return least if least == most else f"{least} to {most}"


def _communicator(one: Mapping[str, Any]) -> Mapping[str, str]:
    """What NCCL's RAS or its log said of one, whichever keys it came with."""
    name = one.get("name") if one.get("name") not in (None, "") else one.get("comm_id") or one.get("index", "")
    size = one.get("size", one.get("nranks", ""))
    said = []
    for key in ("stages", "missing", "behind", "culprits", "reason", "between_nodes"):
        value = one.get(key)
        if value:
            said.append(f"{key.replace('_', ' ')}: {_short(value)}")
    return {"name": one_line(name), "size": one_line(size), "said": "; ".join(said)}


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in list(value.items())[:12])
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return fold_ranks(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in value[:12])
    return str(value)
