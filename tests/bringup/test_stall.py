"""Stuck is what does not move: neither slow work nor repeated lines count for or against it by themselves."""

from __future__ import annotations

import pytest

from ncdiag.bringup.stall import Stall
from ncdiag.model import Frame, Progress, RankState

STORE = [
    Frame("_create_c10d_store", "torch/distributed/rendezvous.py", 199),
    Frame("init_process_group", "torch/distributed/distributed_c10d.py", 1892),
]
LOAD = [
    Frame("safetensors_weights_iterator", "vllm/model_executor/model_loader/weight_utils.py", 12),
    Frame("load_model", "vllm/v1/worker/gpu_worker.py", 5),
]
OWN = [Frame("main", "/home/u/train.py", 7)]
READY = [Frame("worker_busy_loop", "vllm/v1/executor/multiproc_executor.py", 9)]


def state(frames: list[Frame], *, pid: int = 1, letter: str = "S", progress: Progress | None = None) -> RankState:
    return RankState(
        pid,
        "n",
        "worker",
        rank=pid - 1,
        state=letter,
        threads=[{"name": "MainThread", "active": False, "main": True, "frames": frames}],
        progress=progress or Progress(3.0, frames_changed=False),
    )


def test_waiting_ranks_are_stuck_after_the_time_and_not_before() -> None:
    stall = Stall(60, 0.0)
    stall.see(0.0, [state(STORE)], 0.0)
    assert not stall.see(59.0, [state(STORE)], 0.0).moved and not stall.due(59.0)
    assert stall.due(60.0)


def test_it_is_looked_at_again_at_doubling_distances() -> None:
    stall = Stall(10, 0.0)
    stall.see(0.0, [state(STORE)], 0.0)
    due = []
    for second in range(1, 100):
        stall.see(float(second), [state(STORE)], 0.0)
        if stall.due(float(second)):
            due.append(second)
    assert due == [10, 20, 40, 80]


def test_a_load_that_reads_is_never_stuck() -> None:
    stall = Stall(60, 0.0)
    for minute in range(60):
        stall.see(minute * 60.0, [state(LOAD, progress=Progress(3.0, rchar=5 << 20)), state(STORE, pid=2)], 0.0)
        assert not stall.due(minute * 60.0 + 1)


def test_spinning_while_it_waits_for_others_is_no_progress() -> None:
    stall = Stall(60, 0.0)
    spins = Progress(3.0, cpu_s=2.9, frames_changed=True)
    stall.see(0.0, [state(STORE, progress=spins)], 0.0)
    assert not stall.see(61.0, [state(STORE, progress=spins)], 0.0).moved and stall.due(61.0)


def test_a_change_of_stage_new_output_and_a_new_process_move_it() -> None:
    stall = Stall(60, 0.0)
    stall.see(0.0, [state(STORE)], 0.0)
    assert stall.see(50.0, [state(LOAD)], 0.0).moved
    assert stall.see(60.0, [state(LOAD)], 55.0).moved
    assert stall.see(70.0, [state(LOAD), state(LOAD, pid=2)], 55.0).moved
    assert not stall.due(110.0) and stall.due(130.0)


def test_a_stopped_process_counts_after_two_looks() -> None:
    stall = Stall(60, 0.0)
    stall.see(0.0, [state(LOAD), state(LOAD, pid=2, letter="T")], 0.0)
    assert stall.halted == []
    stall.see(3.0, [state(LOAD), state(LOAD, pid=2, letter="T")], 0.0)
    assert stall.halted == [("n", 2)]


def test_a_zombie_that_was_no_rank_is_nobody_s_loss() -> None:
    stall = Stall(60, 0.0)
    rank = state(READY)
    for role, number, halted in (("script", None, False), ("script", 1, True), ("worker", None, True)):
        ended = RankState(7, "n", role, rank=number, state="Z")
        stall.see(0.0, [rank, ended], 0.0)
        stall.see(2.0, [rank, ended], 0.0)
        assert bool(stall.halted) is halted
        stall.see(4.0, [rank], 0.0)


@pytest.mark.parametrize(
    ("own", "computes"),
    [
        (Progress(3.0, cpu_s=2.9, frames_changed=True), True),
        (Progress(3.0, cpu_s=2.9, page_faults=900, frames_changed=True), False),
        (Progress(3.0, cpu_s=2.9, frames_changed=True, children_cpu_s=2.0), False),
        (Progress(3.0, rchar=9 << 20), False),
    ],
)
def test_a_rank_that_only_computes_while_others_wait_is_no_stall_and_is_told(own: Progress, computes: bool) -> None:
    stall = Stall(60, 0.0)
    for second in range(0, 304, 3):
        picture = stall.see(float(second), [state(OWN, progress=own), state(STORE, pid=2)], 0.0)
        assert not stall.due(float(second))
        assert stall.computes_long(picture) == (computes and second >= 300)
    assert not stall.computes_long(stall.see(306.0, [state(OWN, progress=own), state(OWN, pid=2, progress=own)], 0.0))
