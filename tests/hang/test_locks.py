"""Ranks that wait for a file lock: who holds it decides."""

from __future__ import annotations

from dataclasses import replace

from ncdiag.hang import infer
from ncdiag.model import Progress, RankState
from tests.hang.build import rank


def waiting(number: int, holder: int | None, place: str = "all-reduce") -> RankState:
    state = rank(number, "node-a", place, world=3)
    return replace(
        state, lock={"kind": "flock", "file": "/models/a.lock", "holder": holder, "command": "python other.py"}
    )


def test_a_rank_in_the_collective_holds_it() -> None:
    one, two = rank(0, "node-a", "all-reduce", world=3), rank(2, "node-a", "all-reduce", world=3)
    told = infer([one, waiting(1, one.pid, "own"), two])
    assert told.kind == "hang" and "wait for each other" in told.summary
    assert sorted(row.rank or 0 for row in told.culprits) == [0, 1]


def test_a_stranger_holds_it() -> None:
    told = infer(
        [rank(0, "node-a", "all-reduce", world=3), waiting(1, 99, "own"), rank(2, "node-a", "all-reduce", world=3)]
    )
    assert "which process 99 (python other.py) holds" in told.summary and [row.rank for row in told.culprits] == [1]
    assert told.ranks[1].waits_for == "process 99 (python other.py)"


def test_who_works_under_the_lock_is_no_fault() -> None:
    loads = replace(
        rank(0, "node-a", "load", world=3), progress=Progress(3.0, cpu_s=0.1, read_bytes=900 << 20, frames_changed=True)
    )
    told = infer([loads, waiting(1, loads.pid, "own"), waiting(2, loads.pid, "own")])
    assert told.kind == "progressing" and not told.culprits
    assert told.ranks[1].waits_for == f"the flock on /models/a.lock, held by pid {loads.pid}"
