"""Ranks from environment, title, log, variables and order."""

from __future__ import annotations

import pytest

from ncdiag.model import RankState
from ncdiag.processes import ranks
from ncdiag.processes.family import Family, Member
from ncdiag.processes.proc import Proc

SERVE = ["python3", "/venv/bin/vllm", "serve", "/model"]


@pytest.mark.parametrize(("environ", "expected"), [
    ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, (1, 2, 0)),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (None, None, None)),
    ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
    ({"RANK": "x", "WORLD_SIZE": "8"}, (None, None, None)),
])
def test_from_the_environment(environ: dict[str, str], expected: tuple[int | None, ...]) -> None:
    state = RankState(1, "n")
    ranks.from_environment(state, environ)
    assert (state.rank, state.world_size, state.local_rank) == expected


@pytest.mark.parametrize(("title", "arguments", "expected"), [
    ("VLLM::Worker_TP1", ["--tensor-parallel-size", "2"], (1, 2)),
    ("VLLM::Worker_PP1_TP0", ["-tp", "2", "--pipeline-parallel-size=2"], (2, 4)),
    ("VLLM::Worker_PP1", ["-pp", "2"], (1, 2)),
    ("VLLM::Worker_DP1_TP1_EP3", ["-tp", "2"], (1, 2)),
    ("VLLM::Worker_TP3", ["-tp", "2"], (None, None)),
    ("VLLM::Worker", ["-tp", "2"], (None, None)),
])
def test_from_the_title(title: str, arguments: list[str], expected: tuple[int | None, int | None]) -> None:
    state = RankState(1, "n", title=title)
    ranks.from_title(state, [*SERVE, *arguments])
    assert (state.rank, state.world_size) == expected


def test_from_its_log() -> None:
    state = RankState(1, "n")
    ranks.from_log(state, ["x", "(Worker pid=7) world_size=4 rank=2 local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl"])
    assert (state.rank, state.world_size, state.local_rank, state.rank_source) == (2, 4, 0, "log")


def test_from_local_variables() -> None:
    state = RankState(1, "n", variables={"rank": "1", "world_size": "2"})
    ranks.from_variables(state)
    assert (state.rank, state.world_size) == (1, 2)
    odd = RankState(1, "n", variables={"rank": "-1", "world_size": "-1"})
    ranks.from_variables(odd)
    assert odd.rank is None


def test_workers_without_a_title_are_numbered_by_their_start() -> None:
    family: Family = {pid: Member(Proc(pid, parent=9, start_ticks=ticks), "worker") for pid, ticks in ((30, 7), (20, 8))}
    states = {pid: RankState(pid, "n", role="worker") for pid in family}
    ranks.by_order(states, family, {9: [*SERVE, "-tp", "4", "--nnodes", "2", "--node-rank", "1"]})
    assert [(states[pid].rank, states[pid].local_rank, states[pid].rank_source) for pid in (30, 20)] == [(2, 0, "order"), (3, 1, "order")]
    ranks.by_order(lone := {20: RankState(20, "n")}, {20: family[20]}, {9: [*SERVE, "-tp", "2"]})
    assert lone[20].rank is None, "one of two: the other may be the first"
