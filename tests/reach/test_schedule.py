"""Rounds: disjoint, complete where they fit, and crossing every border early."""

from __future__ import annotations

from itertools import combinations

import pytest

from ncdiag.reach import schedule


@pytest.mark.parametrize("count", [*range(2, 14), 40])
def test_few_nodes_meet_each_other_once(count: int) -> None:
    rounds = schedule.rounds(count, 40)
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == list(combinations(range(count), 2))
    assert len(rounds) == count - 1 + count % 2


@pytest.mark.parametrize("count", [2, 7, 42, 1000, 1001])
def test_no_node_is_in_two_pairs_of_a_round(count: int) -> None:
    rounds = schedule.rounds(count, 30)
    assert len(rounds) <= 30
    for pairs in rounds:
        nodes = [node for pair in pairs for node in pair]
        assert len(nodes) == len(set(nodes)) and all(low < high < count for low, high in pairs)


@pytest.mark.parametrize("border", [1, 16, 500, 984])
def test_every_border_is_crossed_by_the_first_twenty(border: int) -> None:
    crossing = [
        pair for pairs in schedule.rounds(1000, 20) for pair in pairs if (pair[0] < border) != (pair[1] < border)
    ]
    assert len(crossing) >= 10


def test_same_rounds_everywhere() -> None:
    assert schedule.rounds(300, 40, 7) == schedule.rounds(300, 40, 7) != schedule.rounds(300, 40, 8)
    assert schedule.rounds(1, 40) == []


@pytest.mark.parametrize("first, second", [
    ({0}, {1}), ({3}, set(range(10))), ({0, 1, 2}, {7, 8}), ({0, 1, 2, 3}, {2, 3, 4}), (set(range(9)), set(range(9))),
])  # fmt: skip
def test_between_two_sets_every_pair_once_and_no_other(first: set[int], second: set[int]) -> None:
    rounds = schedule.rounds(10, None, between=[sorted(first), sorted(second)])
    wanted = {(min(a, b), max(a, b)) for a in first for b in second if a != b}
    met = [pair for pairs in rounds for pair in pairs]
    assert set(met) == wanted and len(met) == len(wanted)
    for pairs in rounds:
        nodes = [node for pair in pairs for node in pair]
        assert pairs and len(nodes) == len(set(nodes))
    together = first | second
    assert len(rounds) <= (len(together) - 1 + len(together) % 2 if first & second else max(len(first), len(second)))


def test_all_pairs_without_a_limit() -> None:
    assert sum(len(pairs) for pairs in schedule.rounds(101, None)) == 101 * 100 // 2
