"""What is told of pairs that got stuck."""

from __future__ import annotations

from typing import Any

import pytest

from ncdiag.bandwidth import blame, judge
from ncdiag.bandwidth.isolation.board import Verdict
from ncdiag.bandwidth.job import Job, Outcome, Place, RankOutcome
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.symptoms import Symptoms
from ncdiag.report.bandwidth import render

LARGE = "all_reduce of 4194304 bytes"


def outcome_of(one: str, other: str, busbw: float | None, passed: int | None = 4096, again: int = 0) -> dict[str, Any]:
    stage = None if busbw else (LARGE if passed else "connecting")
    return {
        "round": 1, "nodes": [one, other], "rail": None, "busbw_gbytes_s": busbw, "stage": stage, "error": None,
        "passed_bytes": 4 << 20 if busbw else passed, "retransmitted": again,
    }  # fmt: skip


HOLE = [
    outcome_of("m2", "m3", None),
    outcome_of("m1", "m3", 0.84),
    outcome_of("m1", "m2", None),
    outcome_of("m2", "m1", 0.69, again=645),
]


@pytest.mark.parametrize("symptoms", [Symptoms(stuck=True), Symptoms(out_gbytes_s=0.7, in_gbytes_s=0.7)])
def test_small_messages_pass_and_large_ones_get_stuck(symptoms: Symptoms) -> None:
    found = Isolation([Verdict("node", ("m2",), (), None, True, 3)], {"m2": symptoms}, tests=HOLE)
    (finding,) = blame.isolated(found)
    assert (finding.status.value, finding.cause, finding.where["node"]) == ("fail", "mtu-mismatch", "m2")
    assert finding.summary == (
        f"m2 is in every pair that got stuck: with m3, m1 ({LARGE}); smaller messages, of 4096 bytes, pass; tried again it came to an end "
        "1 of 3 times, with 645 TCP segments sent again; 1 pair without it came to an end"
    )


def test_a_node_that_never_gets_anywhere_is_dead() -> None:
    tests = [outcome_of("m2", "m3", None, None), outcome_of("m1", "m3", 0.84), outcome_of("m1", "m2", None, None)]
    found = Isolation([Verdict("node", ("m2",), (), None, True, 2)], {"m2": Symptoms(stuck=True)}, tests=tests)
    (finding,) = blame.isolated(found)
    assert finding.cause == "bootstrap-peer-unreachable" and "gets nowhere with any partner" in finding.summary


def test_two_nodes_that_get_stuck_are_each_told() -> None:
    tests = [*HOLE, outcome_of("m4", "m3", None), outcome_of("m4", "m1", None)]
    found = Isolation([Verdict("node", ("m2",), (), 0.8, False, 3)], {"m2": Symptoms()}, tests=tests)
    (finding,) = blame.isolated(found)
    assert finding.summary.startswith(f"m2 got stuck with m3, m1 ({LARGE});")


def test_loss_that_was_seen_says_more() -> None:
    found = Isolation([Verdict("node", ("m2",), (), None, True, 3)], {"m2": Symptoms(idle_loss_out=0.3)}, tests=HOLE)
    (finding,) = blame.isolated(found)
    assert finding.cause == "network-link-degraded" and "loses packets" in finding.summary


def test_a_pair_that_nobody_explains() -> None:
    found = Isolation(
        [Verdict("stuck", ("a", "b"), (), None, True, 2)], tests=[outcome_of("b", "a", None), outcome_of("a", "b", 0.8)]
    )
    (finding,) = blame.isolated(found)
    assert finding.status.value == "warn" and finding.where == {"node": "a", "peer": "b"}
    assert finding.summary.startswith("a and b got stuck with each other in 1 of 2 tests")


def shown(tests: list[dict[str, Any]]) -> str:
    report = {
        "versions": {}, "ranks": [], "nodes": ["m1", "m2"], "backend": "gloo", "changes": [], "engine": [], "rows": [],
        "expectation": {"chosen": "", "terms": []}, "isolation": Isolation(tests=tests).as_dict(),
    }  # fmt: skip
    return render(report, [], [], color=None, detail=False)


def test_nobody_to_blame_only_where_nothing_got_stuck() -> None:
    assert "nobody in particular is to blame" in shown([outcome_of("m1", "m2", 0.8)])
    assert "# 1 pair in 0 rounds (at most 0)" in shown([outcome_of("m1", "m2", 0.8)])
    assert "nobody" not in shown(HOLE)


@pytest.mark.parametrize("error", ["", "RuntimeError: reset"])
@pytest.mark.parametrize(("by_pairs", "advised"), [(True, False), (False, True)])
def test_what_just_ran_is_not_advised(by_pairs: bool, advised: bool, error: str) -> None:
    places = [Place(0, 0), Place(1, 0)]
    outcome = Outcome(Job(places, {}), [RankOutcome(place, error=error) for place in places], took_s=300)
    (finding,) = judge.stuck(outcome, ["m1", "m2"], by_pairs)
    assert ("--isolate" in (finding.remedy or "")) is advised


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 12000ms for recv operation to complete",
        "DistStoreError: Timed out after 13 seconds waiting for clients. 2/3 clients joined.",
        "RuntimeError: Socket Timeout",
    ],
)
def test_a_rank_that_waited_too_long_is_not_the_one_to_blame(words: str) -> None:
    places = [Place(number, 0) for number in range(3)]
    ranks = [RankOutcome(place, stage=LARGE) for place in places]
    ranks[0].error, ranks[2].error = "RuntimeError: Connection closed by peer [192.0.2.3]", words
    (finding,) = judge.stuck(Outcome(Job(places, {}), ranks, took_s=300), ["m1", "m2", "m3"])
    assert "node" not in finding.where and finding.summary.startswith(f"the run of all 3 ranks got stuck ({LARGE})")


def test_a_rank_that_failed_is_named() -> None:
    places = [Place(number, 0) for number in range(2)]
    ranks = [RankOutcome(places[0]), RankOutcome(places[1], error="OutOfMemoryError: CUDA out of memory")]
    (finding,) = judge.stuck(Outcome(Job(places, {}), ranks), ["m1", "m2"])
    assert finding.where == {"node": "m2", "rank": 1}
