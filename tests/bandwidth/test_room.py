"""Sizes are held against the memory that is free before anything is allocated: refused with numbers where they were named, else smaller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ncdiag.bandwidth.job import Place
from ncdiag.bandwidth.measure import Nobody
from ncdiag.bandwidth.room import GIB, factor, largest, tightest, why, written

from .test_lost_nodes import answering, measured

BIG, SMALL = "aaaa-1", "bbbb-2"


def gpu_node(name: str, free_mib: dict[str, float], total: int = 80 * GIB) -> SimpleNamespace:
    cuda = [{"uuid": uuid, "memory": total} for uuid in (BIG, SMALL)]
    return SimpleNamespace(node=name, facts={"cuda": cuda, "gpus": {"free_mib": free_mib}})


def cpu_node(name: str, free: int | None) -> SimpleNamespace:
    return SimpleNamespace(node=name, facts={"cuda": [], "memory_free": free})


def test_the_gpu_with_the_least_memory_counts() -> None:
    agents = [gpu_node("gpu01", {}), gpu_node("gpu02", {f"GPU-{BIG}": 79000.0, f"GPU-{SMALL}": 10240.0})]
    room = tightest([Place(number, device) for number in range(2) for device in range(2)], agents, "nccl")
    assert room is not None and (room.where, room.free, room.ranks) == ("GPU 1 of gpu02", 10 * GIB, 1)
    assert room.each == 8 * GIB and largest(("all_reduce",), 4, room, "nccl") == 4 * GIB
    assert largest(("all_gather",), 8, room, "nccl") == 4 * GIB, "two buffers of 8 GiB / 1.125"


def test_ranks_of_a_node_share_its_memory() -> None:
    agents = [cpu_node("n1", 8 * GIB), cpu_node("n2", 64 * GIB)]
    room = tightest([*(Place(0, number) for number in range(4)), Place(1, 0)], agents, "gloo")
    assert room is not None and (room.where, room.ranks) == ("n1", 4)
    told = why("--max", 64 * GIB, ("all_reduce", "all_gather"), 5, room, "gloo")
    assert told == (
        "--max 64G: all_gather of that size takes 167 GiB of each of the 4 ranks on n1, which has 8 GiB of memory free; "
        "--max 512M is the most that fits"
    )


def test_agents_of_one_node_share_it_too() -> None:
    """Under Ray one agent stands on a node for each of its ranks."""
    agents = [cpu_node("n1", 8 * GIB), cpu_node("n1", 8 * GIB)]
    room = tightest([Place(0, 0), Place(1, 0)], agents, "gloo")
    assert room is not None and room.ranks == 2


@pytest.mark.parametrize("node", [cpu_node("n1", None), SimpleNamespace(node="n1", facts=None)])
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_what_is_not_known_refuses_nothing(node: SimpleNamespace, backend: str) -> None:
    assert tightest([Place(0, 0)], [node], backend) is None


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"])
def test_what_fits_fits(op: str, backend: str) -> None:
    agents: list[Any] = [cpu_node("n1", 20 * GIB)] if backend == "gloo" else [gpu_node("n1", {})]
    room = tightest([Place(0, 0), Place(0, 1)], agents, backend)
    assert room is not None
    size = largest([op], 2, room, backend)
    assert size * factor(op, 2, backend) <= room.each < 2 * size * factor(op, 2, backend)


def test_sizes_are_written_as_they_are_given() -> None:
    assert [written(size) for size in (8, 1 << 10, 512 << 20, 3 << 30, 1000)] == ["8", "1K", "512M", "3G", "1000"]


@pytest.mark.parametrize(
    ("sizes", "pair_size", "said"),
    [
        (
            (8, 64 << 30, 2),
            None,
            "--max 64G: all_reduce of that size takes .* n1.* has 7.45 GiB .*; --max 4G is the most",
        ),
        ((64 << 30, None, 2), None, "--min 64G: .*; --min 4G is the most"),
        ((8, 64, 2), 32 << 30, "--pair-size 32G: send_recv .*; --pair-size 2G is the most"),
    ],
)
def test_what_does_not_fit_is_refused(sizes: tuple[int, int | None, int], pair_size: int | None, said: str) -> None:
    with pytest.raises(Nobody, match=said):
        measured(answering("n1"), answering("n2"), sizes=sizes, pair_size=pair_size)


def test_less_than_the_usual_where_no_size_was_named() -> None:
    """Each has 320 MB free, and 20 are left beside torch itself: the usual 16 MiB and the pairs' 4 MiB need less or more of it."""
    said: list[str] = []
    measured(
        *(answering(name, memory_free=320_000_000) for name in ("n1", "n2")),
        sizes=(8, None, 2),
        limit_s=2,
        say=said.append,
    )
    assert "note: n1 has 0.298 GiB of memory free: as if --max 8M" in said
    assert not any("--pair-size" in line for line in said)
