"""What earlier looks have shown and the last one does not any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bringup.earlier import earlier
from ncdiag.bringup.stall import Key, key
from ncdiag.model import Cause, RankState


class Seen:
    """Takes looks in, one after the other."""

    def __init__(self) -> None:
        self._states: dict[Key, RankState] = {}
        self._oom_before: dict[str, int] = {}
        self.oom: dict[str, int] = {}
        """Node -> processes that its kernel has ended for want of memory since the first look."""
        self.earlier: Cause | None = None
        """A rank of an earlier start that was still there at the last look, or when the command ended."""

    @property
    def states(self) -> list[RankState]:
        """Each process as it was when it last had sockets: what has ended has none."""
        return list(self._states.values())

    def look(self, answers: Sequence[Mapping[str, Any]], states: Sequence[RankState], exited: bool) -> None:
        """`exited`: whether the command has ended with an error."""
        self._states.update({key(state): state for state in states if state.sockets})
        self.earlier = earlier(answers, states) or (self.earlier if exited else None)
        kills = {answer["node"]: answer["oom_kills"] for answer in answers if answer.get("oom_kills") is not None}
        self.oom = {node: count - self._oom_before.setdefault(node, count) for node, count in kills.items()}


def ends(answers: Sequence[Mapping[str, Any]], at_s: float) -> dict[Key, float]:
    """(node, pid) -> when it ended, in seconds since the start. `at_s`: the time of the look."""
    return {
        (answer["node"], int(pid)): round(at_s - ago, 2)
        for answer in answers
        for pid, ago in answer.get("ended_ago_s", {}).items()
    }
