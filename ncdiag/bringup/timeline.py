"""When each process was in which stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.bringup.stall import Key, key
from ncdiag.hang.scene import View

CLOSE_S = 0.15
"""Ends that are nearer to each other than this are not put into an order."""


@dataclass
class Row:
    """One process. Times in seconds since the start."""

    node: str
    pid: int
    role: str
    rank: int | None = None
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    """(stage, from, to); a stage that was never seen between two looks is missing."""
    ended_s: float | None = None
    exact: bool = False
    """Whether `ended_s` is the time of its end, not of the look that missed it."""

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else self.role

    def times(self) -> dict[str, float]:
        """Stage -> seconds in it."""
        found: dict[str, float] = {}
        for stage, start, end in self.spans:
            found[stage] = found.get(stage, 0.0) + end - start
        return found


class Timeline:
    """Rows in the order of rank, node, pid."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}
        self.events: list[dict[str, Any]] = []
        """`{"at_s", "event", …}`: stalls, ready, the end."""

    def see(self, at_s: float, views: Sequence[View], ended: Mapping[Key, float] | None = None) -> None:
        """Takes one look in. `ended`: when processes ended, where that was seen better than by looks."""
        for view in views:
            row = self._rows.setdefault(key(view.state), Row(view.state.node, view.state.pid, view.state.role))
            row.role, row.rank = view.state.role, view.rank if view.rank is not None else row.rank
            if view.verdict == "dead":
                told = (ended or {}).get(key(view.state))
                row.ended_s = told if told is not None else row.ended_s if row.ended_s is not None else at_s
                row.exact = row.exact or told is not None
                continue
            stage = view.stage if view.stage != "unknown" or not row.spans else row.spans[-1][0]
            if row.spans and row.spans[-1][0] == stage:
                row.spans[-1] = (stage, row.spans[-1][1], at_s)
            else:
                start = row.spans[-1][2] if row.spans else max(at_s - (view.state.age_s or 0.0), 0.0)
                row.spans.append((stage, start, at_s))

    def event(self, at_s: float, event: str, **more: Any) -> None:
        self.events.append({"at_s": round(at_s, 2), "event": event, **more})

    @property
    def rows(self) -> list[Row]:
        return sorted(self._rows.values(), key=lambda row: (row.rank is None, row.rank or 0, row.node, row.pid))

    def since(self, state_key: Key) -> float | None:
        """When the process came into the stage that it is in; None for one that was not seen."""
        row = self._rows.get(state_key)
        return row.spans[-1][1] if row is not None and row.spans else None

    def first_end(self) -> Row | None:
        """The process that ended first, where one surely did; servers and launchers only end after their workers."""
        ended = [
            row for row in self._rows.values() if row.ended_s is not None and row.role not in ("api-server", "launcher")
        ]
        ended.sort(key=lambda row: row.ended_s or 0.0)
        if len(ended) > 1 and ((ended[1].ended_s or 0.0) - (ended[0].ended_s or 0.0) < CLOSE_S or not ended[0].exact):
            return None
        return ended[0] if ended else None

    def as_dict(self) -> dict[str, Any]:
        """`rows`: node, pid, role, rank, `spans` of stage, from_s, to_s; `events`."""
        return {
            "rows": [
                {
                    "node": row.node,
                    "pid": row.pid,
                    "role": row.role,
                    "rank": row.rank,
                    "ended_s": row.ended_s,
                    "spans": [
                        {"stage": stage, "from_s": round(start, 2), "to_s": round(end, 2)}
                        for stage, start, end in row.spans
                    ],
                }
                for row in self.rows
            ],
            "events": self.events,
        }
