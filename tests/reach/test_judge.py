"""What a run says of the pairs that it did not test."""

from __future__ import annotations

import itertools

import pytest

from ncdiag.model import Finding
from ncdiag.reach.judge import judge
from ncdiag.reach.seen import Member, Run


def said(there: set[int], tested: set[frozenset[int]], between: list[list[int]] | None = None) -> list[Finding]:
    """Four nodes, of which some gave a report, of some pairs."""
    members = [Member(f"gpu0{number}", f"gpu0{number}", f"192.0.2.{number}", 1500, "eth0") for number in range(4)]
    reports = {
        number: {
            "number": number, "port": 4000, "started": 0.0, "rdma": None,
            "tests": [[0, peer, "tcp", "ok", ""] for peer in range(4) if frozenset((number, peer)) in tested],
        }
        for number in there
    }  # fmt: skip
    request = {"between": between, "start": 10.0, "slot_s": 2.5, "named": [], "ports": [4000], "limit": None}
    silent = {number: "no answer within 5 s" for number in set(range(4)) - there}
    return list(judge(Run("NCCL", members, request, reports, silent)))


def pairs(*numbers: int) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in itertools.combinations(numbers, 2)}


@pytest.mark.parametrize("there, tested, between, words", [
    ({0, 1, 2, 3}, pairs(0, 1, 2, 3), None, "6 of 6 pairs"),
    ({0, 1, 2, 3}, pairs(0, 1, 2), None, "a fault between one pair alone can be missed"),
    ({0, 1, 2}, pairs(0, 1, 2), None, "3 of 6 pairs in 1 rounds; RDMA not tried: NCCL takes no RDMA port; the others have a node that gave nothing"),
    ({0, 1, 2}, pairs(0, 1), None, "a fault between one pair alone can be missed"),
    ({0, 1, 2}, {frozenset((0, 2))}, [[0, 1], [2, 3]], "a fault between one pair alone can be missed"),
    ({0, 2, 3}, {frozenset((0, 2)), frozenset((0, 3))}, [[0, 1], [2, 3]], "2 of 4 pairs in 1 rounds; RDMA not tried: NCCL takes no RDMA port; the others have a node that gave nothing"),
])  # fmt: skip
def test_pairs_that_were_not_tested(
    there: set[int], tested: set[frozenset[int]], between: list[list[int]] | None, words: str
) -> None:
    found = said(there, tested, between)
    assert [finding.status.value for finding in found] == ["unknown"] * (4 - len(there)) + ["ok"]
    assert found[-1].summary.endswith(words) or words in found[-1].summary


@pytest.mark.parametrize("there, words", [
    ({1}, "no pair of nodes was tested: gpu01 gave a report"), (set(), "no pair of nodes was tested: no node gave a report"),
    ({0, 1}, "no two agents were up at the same time"),
])  # fmt: skip
def test_no_pair_was_tested(there: set[int], words: str) -> None:
    found = said(there, set())
    assert {finding.status.value for finding in found} == {"unknown"} and words in found[-1].summary


@pytest.mark.parametrize("between, tested, words", [
    (None, pairs(0, 1, 2, 3), "4 nodes reach each other both ways"),
    ([[1], [1, 2, 3]], {frozenset((1, 2)), frozenset((1, 3))}, "gpu01 and gpu[02-03] reach each other both ways"),
    ([[0, 1, 2, 3], [2]], {frozenset((2, number)) for number in (0, 1, 3)}, "gpu[00-01,03] and gpu02 reach each other both ways"),
    ([[0, 1], [2, 3]], {frozenset((low, high)) for low in (0, 1) for high in (2, 3)}, "gpu[00-01] and gpu[02-03] reach each other both ways"),
    ([[0], [1]], pairs(0, 1), "2 nodes reach each other both ways"), ([[0, 1, 2], [0, 1, 2]], pairs(0, 1, 2), "3 nodes reach each other both ways"),
])  # fmt: skip
def test_only_those_that_were_tested_reach_each_other(
    between: list[list[int]] | None, tested: set[frozenset[int]], words: str
) -> None:
    (finding,) = said({0, 1, 2, 3}, tested, between)
    assert finding.summary.startswith(words)
