"""A rank of an earlier start that is still there and meets at the same place as the one that was started now (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.model import Cause, Evidence, RankState


def earlier(answers: Sequence[Mapping[str, Any]], states: Sequence[RankState]) -> Cause | None:
    """`answers` name the `strangers`: processes that share the meeting place, but were not started by this command."""
    strangers = {(answer["node"], pid) for answer in answers for pid in answer.get("strangers", ())}
    started = {(answer["node"], pid) for answer in answers for pid in answer.get("own", ())}
    for old in states:
        if (old.node, old.pid) not in strangers or old.rank is None or old.state in ("gone", "Z", "X"):
            continue
        for new in states:
            if (new.node, new.pid) in started and new.rank == old.rank and new.node == old.node:
                return _cause(old, new)
    return None


def _cause(old: RankState, new: RankState) -> Cause:
    ports = sorted({socket.local.rpartition(":")[2] for socket in old.sockets if socket.state == "LISTEN"}, key=int)
    holds = f" and listens on port {', '.join(ports[:4])}" if ports else ""
    age = f", {old.age_s:.0f} s old" if old.age_s is not None else ""
    evidence = [
        Evidence(f"process {old.pid} on {old.node}", f"rank {old.rank}{age}{holds}; it is not of this command"),
        Evidence(f"process {new.pid} on {new.node}", f"rank {new.rank} of this command"),
    ]
    return Cause(
        "stale-process",
        "likely",
        f"rank {old.rank} is there twice on {old.node}: pid {old.pid} of an earlier start{holds}, and pid {new.pid} of this one",
        {"node": old.node, "rank": old.rank},
        evidence,
        [],
        f"end the earlier one (look: ps -fp {old.pid}; then: kill {old.pid}) and start again",
    )
