"""Ranks from environment, title, log, variables and order."""

from __future__ import annotations

import pytest

from ncdiag.model import RankState
from ncdiag.processes import ranks
from ncdiag.processes.family import Member
from ncdiag.processes.look import Look
from ncdiag.processes.proc import Proc

SERVE = ["python3", "/venv/bin/vllm", "serve", "/model"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, (1, 2, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (None, None, None)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
        ({"RANK": "x", "WORLD_SIZE": "8"}, (None, None, None)),
    ],
)
def test_from_the_environment(environ: dict[str, str], expected: tuple[int | None, ...]) -> None:
    state = RankState(1, "n")
    ranks.from_environment(state, environ)
    assert (state.rank, state.world_size, state.local_rank) == expected


@pytest.mark.parametrize(
    ("title", "arguments", "expected"),
    [
        ("VLLM::Worker_TP1", ["--tensor-parallel-size", "2"], (1, 2)),
        ("VLLM::Worker_PP1_TP0", ["-tp", "2", "--pipeline-parallel-size=2"], (2, 4)),
        ("VLLM::Worker_PP1", ["-pp", "2"], (1, 2)),
        ("VLLM::Worker_DP1_TP1_EP3", ["-tp", "2"], (1, 2)),
        ("VLLM::Worker_TP3", ["-tp", "2"], (None, None)),
        ("VLLM::Worker", ["-tp", "2"], (None, None)),
    ],
)
def test_from_the_title(title: str, arguments: list[str], expected: tuple[int | None, int | None]) -> None:
    state = RankState(1, "n", title=title)
    ranks.from_title(state, [*SERVE, *arguments])
    assert (state.rank, state.world_size) == expected


def test_from_its_log() -> None:
    state = RankState(1, "n")
    ranks.from_log(
        state,
        [
            "x",
            "(Worker pid=7) world_size=4 rank=2 local_rank=0 distributed_init_method=tcp://192.0.2.1:29501 backend=nccl",
        ],
    )
    assert (state.rank, state.world_size, state.local_rank, state.rank_source) == (2, 4, 0, "log")


def test_from_local_variables() -> None:
    state = RankState(1, "n", variables={"rank": "1", "world_size": "2"})
    ranks.from_variables(state)
    assert (state.rank, state.world_size) == (1, 2)
    odd = RankState(1, "n", variables={"rank": "-1", "world_size": "-1"})
    ranks.from_variables(odd)
    assert odd.rank is None


def looks(ticks: dict[int, int]) -> dict[int, Look]:
    """A headless server, process 9, and its workers, by pid with the time of their start."""
    server = Look(
        Member(Proc(9, argv=[*SERVE, "-tp", "4", "--nnodes", "2", "--node-rank", "1", "--headless"]), "headless"),
        RankState(9, "n", "headless"),
    )
    return {
        9: server,
        **{
            pid: Look(Member(Proc(pid, parent=9, start_ticks=when), "worker"), RankState(pid, "n", "worker", parent=9))
            for pid, when in ticks.items()
        },
    }


def test_workers_without_a_title_are_numbered_by_their_start() -> None:
    found = looks({30: 7, 20: 8})
    ranks.number(found)
    assert [(found[pid].state.rank, found[pid].state.local_rank, found[pid].state.rank_source) for pid in (30, 20)] == [
        (2, 0, "order"),
        (3, 1, "order"),
    ]


def test_one_of_two_may_be_either() -> None:
    found = looks({20: 8})
    ranks.number(found)
    assert found[20].state.rank is None
