"""Folding of names and numbers."""

from __future__ import annotations

import doctest

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from ncdiag import nodeset


def test_examples() -> None:
    assert doctest.testmod(nodeset).failed == 0


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([f"gpu{number:04}" for number in range(1, 129)], "gpu[0001-0128]"),
        (["gpu08", "gpu09", "gpu10", "gpu11"], "gpu[08-11]"),
        (["gpu9", "gpu10", "gpu11"], "gpu[9-11]"),
        (["a1", "a3", "b1"], "a[1,3],b1"),
        (["node1.cluster", "node2.cluster"], "node[1-2].cluster"),
        (["login"], "login"),
        ([], ""),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert nodeset.fold(names) == folded


@given(st.sets(st.integers(0, 300), min_size=1), st.integers(1, 4))
def test_folded_names_unfold_to_the_same(numbers: set[int], width: int) -> None:
    names = {f"gpu{number:0{width}}" for number in numbers}
    assert set(NodeSet(nodeset.fold(names))) == names


@given(st.lists(st.integers(0, 20), unique=True, min_size=1))
def test_order_is_kept(numbers: list[int]) -> None:
    unfolded: list[int] = []
    for part in nodeset.order(numbers).split(","):
        first, _, last = part.partition("-")
        step = 1 if int(last or first) >= int(first) else -1
        unfolded += range(int(first), int(last or first) + step, step)
    assert unfolded == numbers
