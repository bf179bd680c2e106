"""A rank of an earlier start is told from a rank of this one, and from a rank that somebody else started for the same job."""

from __future__ import annotations

from typing import Any

from ncdiag.bringup.earlier import earlier
from ncdiag.model import RankState, Socket

OLD = RankState(40, "n", "script", rank=0, state="S", age_s=900.0, sockets=[Socket("LISTEN", "0.0.0.0:29501", "")])
NEW = RankState(70, "n", "script", rank=0, state="S", age_s=4.0)


def answers(**more: Any) -> list[dict[str, Any]]:
    return [{"node": "n", "own": [70, 71], "strangers": [40], **more}]


def test_the_same_rank_twice_on_one_node_is_named_with_its_port() -> None:
    cause = earlier(answers(), [OLD, NEW])
    assert cause is not None and cause.cause == "stale-process"
    assert cause.where == {"node": "n", "rank": 0} and "29501" in cause.summary and "kill 40" in cause.remedy


def test_also_when_the_new_one_has_already_failed() -> None:
    assert earlier(answers(), [OLD, RankState(70, "n", "script", rank=0, state="gone")]) is not None


def test_what_has_ended_and_what_is_another_rank_holds_nobody_up() -> None:
    gone = RankState(40, "n", "script", rank=0, state="gone")
    other = RankState(40, "n", "script", rank=1, state="S")
    elsewhere = RankState(40, "m", "script", rank=0, state="S")
    for old in (gone, other, elsewhere):
        assert earlier(answers(), [old, NEW]) is None
    assert earlier([{"node": "n"}], [OLD, NEW]) is None
