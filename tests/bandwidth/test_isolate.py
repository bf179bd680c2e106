"""The search for bad nodes, on small truths without noise, with noise, and with nodes that get stuck."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncdiag.bandwidth.isolation.board import Pair
from ncdiag.bandwidth.isolation.few import round_robin
from ncdiag.bandwidth.isolation.search import Search, most_rounds

Measure = Callable[[Pair], float | None]
RAILS = tuple(f"mlx5_{number}" for number in range(4))


def run(search: Search, measure: Measure) -> Search:
    while tests := search.next_round():
        names = [node for test in tests for node in (test.one, test.other)]
        assert len(names) == len(set(names)), "tests of one round share a node"
        search.take({test: measure(test) for test in tests})
    assert search.rounds <= most_rounds(len(search.nodes))
    return search


def cluster(bad: Mapping[str, float | None], noise: float = 0.0, seed: int = 1) -> Measure:
    """`bad`: node -> its share of the usual 97 GB/s, None: it gets stuck."""
    chance = random.Random(seed)

    def measure(test: Pair) -> float | None:
        shares = [bad.get(node, 1.0) for node in (test.one, test.other)]
        if None in shares:
            return None
        return 97.0 * min(share for share in shares if share is not None) * math.exp(chance.gauss(0, noise))

    return measure


def blamed(search: Search) -> dict[str, str]:
    return {"+".join(verdict.nodes): verdict.kind for verdict in search.verdicts}


@pytest.mark.parametrize("count", [4, 5, 8, 9, 16, 33, 200])
def test_one_slow_node_is_found(count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    assert blamed(run(Search(nodes), cluster({"n2": 0.4}))) == {"n2": "node"}


@pytest.mark.parametrize("count", [4, 16, 64])
def test_a_healthy_cluster_blames_nobody_and_stops_early(count: int) -> None:
    search = run(Search([f"n{number}" for number in range(count)]), cluster({}, noise=0.01))
    assert search.verdicts == []
    assert search.rounds <= max(2, count - 1 if count <= 8 else 2)


def test_a_stuck_node_is_named_as_stuck() -> None:
    (verdict,) = run(Search([f"n{number}" for number in range(12)]), cluster({"n7": None})).verdicts
    assert (verdict.kind, verdict.nodes, verdict.stuck, verdict.ratio) == ("node", ("n7",), True, None)


def test_most_of_few_nodes_may_be_bad() -> None:
    """Two of six are healthy; the pair of them says what is usual."""
    search = run(Search(list("abcdef"), slow_below=0.5), cluster({"c": 0.1, "d": 0.3, "e": None, "f": 0.2}))
    assert blamed(search) == dict.fromkeys("cdef", "node")


def test_two_nodes_cannot_be_told_apart() -> None:
    search = run(Search(["a", "b"]), lambda test: None)
    assert {verdict.kind for verdict in search.verdicts} <= {"node", "unsure"}


def test_a_bad_nic_is_told_from_a_bad_node() -> None:
    nodes = [f"n{number}" for number in range(20)]
    truth = {"n3": ("mlx5_2", 0.3)}

    def measure(test: Pair) -> float:
        share = 1.0
        for node in (test.one, test.other):
            if node in truth and test.rail in (None, truth[node][0]):
                share = min(share, truth[node][1])
        return (97.0 if test.rail is None else 24.0) * share

    (verdict,) = run(Search(nodes, {node: RAILS for node in nodes}), measure).verdicts
    assert (verdict.kind, verdict.nodes, verdict.rails) == ("rail", ("n3",), ("mlx5_2",))


def test_nodes_behind_one_slow_uplink_are_a_group() -> None:
    nodes = [f"n{number:02d}" for number in range(40)]
    inside = set(nodes[8:12])

    def measure(test: Pair) -> float:
        return 97.0 * (0.5 if (test.one in inside) != (test.other in inside) else 1.0)

    assert blamed(run(Search(nodes), measure)) == {"+".join(nodes[8:12]): "group"}


def test_a_path_between_two_good_nodes() -> None:
    """Found where the two happen to meet in the screening: with few nodes they always do."""

    def measure(test: Pair) -> float:
        return 97.0 * (0.3 if {test.one, test.other} == {"a", "b"} else 1.0)

    assert blamed(run(Search(list("abcdef")), measure)) in ({"a+b": "path"}, {"b+a": "path"})


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 60), st.integers(0, 3), st.integers(0, 10_000))
def test_any_few_bad_nodes_among_many(count: int, number: int, seed: int) -> None:
    nodes = [f"n{index}" for index in range(count)]
    bad = dict.fromkeys(random.Random(seed).sample(nodes, min(number, count // 8)), 0.35)
    search = run(Search(nodes, seed=seed), cluster(bad, noise=0.01, seed=seed))
    assert blamed(search) == dict.fromkeys(bad, "node")


def test_round_robin_meets_everybody_once() -> None:
    for names in (list("abcd"), list("abcde")):
        met = [frozenset(pair) for pairs in round_robin(names) for pair in pairs]
        assert len(met) == len(set(met)) == len(names) * (len(names) - 1) // 2


def flaky(*answers: tuple[str, list[float | None]], usual: float = 0.84) -> Measure:
    """Pairs (`"a b"`) with their own answers, one a test, the last again and again; all others are as usual."""
    left = {frozenset(names.split()): list(values) for names, values in answers}

    def measure(test: Pair) -> float | None:
        values = left.get(frozenset((test.one, test.other)), [usual])
        return values.pop(0) if len(values) > 1 else values[0]

    return measure


def test_what_got_stuck_is_not_taken_back_by_a_later_success() -> None:
    """Full packets are lost at m2: two of its pairs get stuck, one comes through when tried again."""
    for again in (None, 0.69):
        for seed in range(5):
            hole = flaky(("m2 m3", [None, again]), ("m1 m2", [None, 0.69]))
            assert blamed(run(Search(["m1", "m2", "m3"], seed=seed), hole)) == {"m2": "node"}


@pytest.mark.parametrize("count", [4, 6, 8])
def test_a_node_whose_pairs_all_got_stuck_once(count: int) -> None:
    nodes = [f"n{number}" for number in range(count)]
    stuck: list[tuple[str, list[float | None]]] = [(f"n1 {node}", [None, 0.8]) for node in nodes if node != "n1"]
    assert blamed(run(Search(nodes), flaky(*stuck))) == {"n1": "node"}


def test_pairs_that_got_stuck_without_a_common_node_are_told() -> None:
    search = run(Search(list("abcdef")), flaky(("a b", [None, 0.84]), ("c d", [None, 0.84])))
    assert blamed(search) == {"a+b": "stuck", "c+d": "stuck"}
    search.next_round()
    assert len(search.verdicts) == 2


def test_a_common_node_that_works_with_others_is_not_blamed() -> None:
    search = run(Search(list("abcdef")), flaky(("a b", [None, 0.84]), ("a c", [None, 0.84])))
    assert blamed(search) == {"a+b": "stuck", "a+c": "stuck"}


NOISE = json.loads((Path(__file__).parents[2] / "benchmarks" / "isolation-noise.json").read_text())
WIDE, OUTLIERS = (next(values for name, values in NOISE.items() if word in name) for word in ("gloo", "NCCL"))
"""Values of healthy pairs over their median, from real runs: on CPUs that are overloaded, and over TCP between GPUs."""


def of_leaf(numbers: range, share: float, noise: Sequence[float], seed: int) -> Measure:
    """Nodes n000, n001, … of which some hang on one slow uplink: fast among themselves."""
    chance = random.Random(seed)
    inside = {f"n{number:03d}" for number in numbers}

    def measure(test: Pair) -> float:
        slow = (test.one in inside) != (test.other in inside)
        return 97.0 * (share if slow else 1.0) * chance.choice(noise)

    return measure


def told(search: Search) -> set[str]:
    return {node for verdict in search.verdicts if verdict.kind != "unsure" for node in verdict.nodes}


@pytest.mark.parametrize(
    ("noise", "count", "least"), [(WIDE, 120, 0.5), (WIDE, 300, 0.9), (OUTLIERS, 60, 0.9), (OUTLIERS, 300, 0.99)]
)
def test_a_leaf_in_real_noise_is_found_and_nobody_else(noise: list[float], count: int, least: float) -> None:
    """Before, a third of such nodes was found: bad is not only who is often low, but who is never high."""
    truth = {f"n{number:03d}" for number in range(8, 16)}
    right = wrong = 0
    for seed in range(10):
        search = run(
            Search([f"n{number:03d}" for number in range(count)], seed=seed), of_leaf(range(8, 16), 0.5, noise, seed)
        )
        right += len(told(search) & truth)
        wrong += len(told(search) - truth)
    assert wrong == 0 and right >= least * 10 * len(truth)


def leaves(bad: Mapping[range, float], alone: Mapping[str, float | None], seed: int) -> Measure:
    """20 nodes in the noise with outliers, of which whole leaves hang on a slow uplink and others are bad by themselves (None: stuck)."""
    chance = random.Random(seed)

    def measure(test: Pair) -> float | None:
        shares = [alone.get(node, 1.0) for node in (test.one, test.other)]
        numbers = [int(node[1:]) for node in (test.one, test.other)]
        shares += [share for leaf, share in bad.items() if (numbers[0] in leaf) != (numbers[1] in leaf)]
        return None if None in shares else 97.0 * min(filter(None, shares)) * chance.choice(OUTLIERS)

    return measure


@pytest.mark.parametrize("alone", [{}, {"n003": 0.4}, {"n003": None}])
def test_a_leaf_of_8_among_20_is_found_though_half_of_all_pairs_are_slow(alone: dict[str, float | None]) -> None:
    names = [f"n{number:03d}" for number in range(20)]
    truth = {*names[8:16], *alone}
    found = [told(run(Search(names, seed=seed), leaves({range(8, 16): 0.5}, alone, seed))) for seed in range(10)]
    assert not set().union(*found) - truth
    assert sum(map(len, found)) >= 0.85 * 10 * len(truth)


def test_where_most_nodes_are_bad_no_healthy_one_is_named() -> None:
    names = [f"n{number:03d}" for number in range(20)]
    for seed in range(10):
        bad = {range(0, 8): 0.4, range(8, 16): 0.5}
        assert told(run(Search(names, seed=seed), leaves(bad, {}, seed))) <= set(names[:16])


def test_two_nodes_that_get_stuck_with_everybody_are_both_named() -> None:
    names = [f"n{number:02d}" for number in range(12)]
    assert blamed(run(Search(names), cluster({"n02": None, "n07": None}))) == dict.fromkeys(("n02", "n07"), "node")


def test_a_path_between_two_of_many_nodes() -> None:
    """Told only after more tests than among few nodes: chance makes one of many pairs slow."""
    names = [f"n{number:02d}" for number in range(12)]
    first = Search(names).next_round()[0]
    bad = {first.one, first.other}
    (verdict,) = run(Search(names), lambda test: 97.0 * (0.3 if {test.one, test.other} == bad else 1.0)).verdicts
    assert (verdict.kind, set(verdict.nodes), verdict.ratio) == ("path", bad, 0.3)


@pytest.mark.parametrize("noise", [WIDE, OUTLIERS])
@pytest.mark.parametrize("count", [12, 20, 60, 200])
def test_noise_alone_blames_nobody(noise: list[float], count: int) -> None:
    blamed_in = 0
    for seed in range(20):
        search = run(
            Search([f"n{number:03d}" for number in range(count)], seed=seed), of_leaf(range(0), 1.0, noise, seed)
        )
        blamed_in += bool(told(search))
    assert blamed_in == 0, "of 20 runs"


def test_many_bad_nodes_do_not_make_each_other_look_usual() -> None:
    """A fifth of all, so that more than a third of the first pairs is slow."""
    names = [f"n{number:03d}" for number in range(80)]
    bad = dict.fromkeys(random.Random(5).sample(names, 16), 0.5)
    search = run(Search(names, seed=3), cluster(bad, noise=0.08, seed=3))
    assert told(search) == set(bad)


def test_two_slow_tests_beside_as_many_good_ones_are_no_verdict() -> None:
    """Few values scatter little by chance, and one of the pairs is disturbed twice."""
    names = [f"n{number}" for number in range(12)]
    disturbed = iter([0.3, 0.3, 1.0, 0.3, 1.0, 0.3, 1.0, 1.0])

    def measure(test: Pair) -> float:
        return 97.0 * (next(disturbed, 1.0) if "n3" in (test.one, test.other) else 1.0)

    assert "n3" not in told(run(Search(names), measure))
