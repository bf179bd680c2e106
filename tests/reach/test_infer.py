"""What the failures have in common, on simulated networks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ncdiag.reach import schedule
from ncdiag.reach.infer import Fault, Trial, faults

Broken = Callable[[int, int], bool]


def simulate(count: int, limit: int, broken: Broken, word: str = "dropped") -> list[Fault]:
    trials = []
    for pairs in schedule.rounds(count, limit):
        for low, high in pairs:
            for source, target in ((low, high), (high, low)):
                trials.append(Trial(source, target, word if broken(source, target) else "ok"))
    return faults(trials)


def told(found: list[Fault]) -> list[tuple[str, list[int]]]:
    return [(fault.kind, fault.nodes) for fault in found]


@pytest.mark.parametrize("count, limit", [(4, 40), (9, 40), (1000, 12)])
class TestOneNode:
    def test_down(self, count: int, limit: int) -> None:
        assert told(simulate(count, limit, lambda a, b: 2 in (a, b))) == [("both", [2])]

    def test_nothing_comes_in(self, count: int, limit: int) -> None:
        assert told(simulate(count, limit, lambda a, b: b == 2)) == [("to", [2])]

    def test_nothing_goes_out(self, count: int, limit: int) -> None:
        assert told(simulate(count, limit, lambda a, b: a == 2)) == [("from", [2])]


def test_all_is_well() -> None:
    assert simulate(50, 40, lambda a, b: False) == []


def test_single_link_both_ways_and_one_way() -> None:
    (fault,) = simulate(8, 40, lambda a, b: {a, b} == {1, 5}, "refused")
    assert (fault.kind, {*fault.nodes, *fault.others}, fault.one_way, fault.outcome) == (
        "link",
        {1, 5},
        False,
        "refused",
    )
    (fault,) = simulate(8, 40, lambda a, b: (a, b) == (5, 1))
    assert (fault.kind, fault.nodes, fault.others, fault.one_way) == ("link", [5], [1], True)


def test_two_nodes_alone_are_a_link() -> None:
    (fault,) = simulate(2, 40, lambda a, b: a == 0)
    assert (fault.kind, fault.nodes, fault.others, fault.one_way) == ("link", [0], [1], True)


@pytest.mark.parametrize("inside", [range(500), range(320, 336), range(1000 - 4, 1000)], ids=["half", "rack", "four"])
def test_border_between_two_sets(inside: range) -> None:
    (fault,) = simulate(1000, 24, lambda a, b: (a in inside) != (b in inside))
    assert fault.kind == "border" and set(fault.nodes) in (set(inside), set(range(1000)) - set(inside))


def test_several_faults_at_once() -> None:
    def broken(source: int, target: int) -> bool:
        return 7 in (source, target) or target == 300 or (source, target) == (0, 1)

    found = simulate(1000, 20, broken)
    assert (
        ("both", [7]) in told(found)
        and ("to", [300]) in told(found)
        and ("link", [0]) in told(found)
        and len(found) == 3
    )
