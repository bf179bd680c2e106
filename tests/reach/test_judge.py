"""What a run says of the pairs that it did not test."""

from __future__ import annotations

import itertools

import pytest

from ncdiag.model import Finding
from ncdiag.reach.judge import judge
from ncdiag.reach.seen import Member, Run

ADDRESSES = tuple(f"192.0.2.{number}" for number in range(4))


def tcp(
    outcomes: dict[tuple[int, int], tuple[str, str]],
    addresses: tuple[str, ...] = ADDRESSES,
    sizes: dict[tuple[int, int], int] | None = None,
) -> list[Finding]:
    """Four nodes that have all tested each other; `outcomes` of the tests that did not end well, `sizes`: path MTUs below 1500."""
    members = [
        Member(f"gpu0{number}", f"gpu0{number}", address, 1500, "eth0") for number, address in enumerate(addresses)
    ]
    reports = {}
    for own in range(4):
        told = [[0, peer, "tcp", *outcomes.get((own, peer), ("ok", ""))] for peer in range(4) if peer != own]
        told += [[0, peer, "mtu", "ok", (sizes or {}).get((own, peer), 1500)] for peer in range(4) if peer != own]
        reports[own] = {"number": own, "port": 4000, "started": 0.0, "rdma": None, "tests": told}
    request = {"between": None, "start": 10.0, "slot_s": 2.5, "named": [], "ports": [4000], "limit": None}
    return list(judge(Run("NCCL", members, request, reports)))


@pytest.mark.parametrize("error, cause, words", [
    ("EINVAL", "bootstrap-peer-unreachable", "blackhole"), ("ENETUNREACH", "bootstrap-peer-unreachable", "no route"),
    ("EHOSTUNREACH", "bootstrap-peer-unreachable", "unreachable"), ("EACCES", "bootstrap-peer-unreachable", "prohibit"),
    ("EPERM", "bootstrap-blocked-firewall", "filter"), ("EMFILE", "bootstrap-peer-unreachable", "an error of its own"),
])  # fmt: skip
@pytest.mark.parametrize("source, target", [(1, 3), (3, 1)])
def test_what_its_own_kernel_refuses_is_the_nodes_own(
    source: int, target: int, error: str, cause: str, words: str
) -> None:
    (finding,) = tcp({(source, target): ("local", error), (target, source): ("dropped", "")})
    assert finding.status.value == "fail" and finding.where["node"] == f"gpu0{source}" and finding.cause == cause
    assert finding.summary.startswith(f"gpu0{source} cannot reach gpu0{target}") and f"{error}: " in finding.summary
    assert words in finding.summary and "nor the other way round" in finding.summary
    assert f"ip route get 192.0.2.{target} from 192.0.2.{source}" in str(finding.remedy)


def test_what_follows_from_one_address_of_two_machines_is_not_told_again() -> None:
    same = ("192.0.2.0", "192.0.2.1", "192.0.2.1", "192.0.2.3")
    outcomes = {
        (1, 2): ("stranger", "1"),
        (2, 1): ("stranger", "2"),
        (0, 2): ("stranger", "1"),
        (2, 0): ("dropped", ""),
        (3, 1): ("dropped", ""),
    }
    (finding,) = tcp(outcomes, same)
    assert finding.summary == "gpu[01-02] have one address, 192.0.2.1 on eth0: who asks for the one gets the other"
    assert finding.cause == "bootstrap-peer-unreachable" and "arping -D -I eth0 192.0.2.1" in str(finding.remedy)
    (finding,) = tcp({(0, 2): ("stranger", "1"), (2, 0): ("dropped", "")})
    assert finding.summary == "gpu01 (192.0.2.1) answers at the address of gpu02, 192.0.2.2 on eth0"
    others = tcp({**outcomes, (0, 3): ("dropped", "")}, same)
    assert [one.summary for one in others if "one address" not in one.summary] == [
        "gpu00 cannot reach gpu03 on eth0 (192.0.2.0): no answer: dropped; the way back works"
    ]


STUCK = ("stuck", "131072 bytes each way: timed out")


def test_an_mtu_hole_is_told_with_the_size_that_passes() -> None:
    ends = [(2, peer) for peer in (0, 1, 3)]
    ends += [(high, low) for low, high in ends]
    (finding,) = tcp(dict.fromkeys(ends, STUCK), sizes=dict.fromkeys(ends, 1400))
    assert finding.cause == "mtu-mismatch" and finding.where["node"] == "gpu02"
    assert finding.summary == (
        "large messages to and from gpu02 are lost on eth0 (192.0.2.2), small ones pass; packets of up to 1400 bytes (path MTU) pass; 6 of 6 tests"
    )
    (finding,) = tcp({(0, 1): STUCK}, sizes={(0, 1): 1280})
    assert finding.summary.startswith(
        "large messages from gpu00 to gpu01 are lost on eth0 (192.0.2.0), small ones pass; packets of up to 1280 bytes"
    )


def test_a_node_without_routes_is_named_for_its_own_reason() -> None:
    lost = {(2, peer): ("local", "ENETUNREACH") for peer in (0, 1, 3)} | {
        (peer, 2): ("dropped", "") for peer in (0, 1, 3)
    }
    (finding,) = tcp(lost)
    assert finding.where["node"] == "gpu02" and "the kernel of gpu02 refuses at once (ENETUNREACH" in finding.summary


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
    ({0, 1, 2}, pairs(0, 1, 2), None, "3 of 6 pairs in 1 round; RDMA not tried: NCCL takes no RDMA port; the others have a node that gave nothing"),
    ({0, 1, 2}, pairs(0, 1), None, "a fault between one pair alone can be missed"),
    ({0, 1, 2}, {frozenset((0, 2))}, [[0, 1], [2, 3]], "a fault between one pair alone can be missed"),
    ({0, 2, 3}, {frozenset((0, 2)), frozenset((0, 3))}, [[0, 1], [2, 3]], "2 of 4 pairs in 1 round; RDMA not tried: NCCL takes no RDMA port; the others have a node that gave nothing"),
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


def test_a_link_that_is_known_to_be_down_is_told_with_the_fault() -> None:
    members = [
        Member(
            f"gpu0{number}", f"gpu0{number}", f"192.0.2.{number}", 1500, "eth0", link="has no carrier" * (number == 1)
        )
        for number in range(2)
    ]
    reports = {
        own: {"number": own, "port": 4000, "started": 0.0, "rdma": None, "tests": [[0, 1 - own, "tcp", "dropped", ""]]}
        for own in (0, 1)
    }  # fmt: skip
    request = {"between": None, "start": 10.0, "slot_s": 2.5, "named": [], "ports": [4000], "limit": None}
    (finding,) = judge(Run("NCCL", members, request, reports))
    assert "dropped; eth0 of gpu01 has no carrier" in finding.summary
