"""Hang dumps of real NCCL and real vLLM on GPUs: the rank and the cause are named, healthy and slow ones are not accused."""

from __future__ import annotations

import pytest

from ncdiag.hang import Verdict
from ncdiag.hang.content import DumpContent
from tests.gpu.captures import FINE, STACKS, Truth, hosts, machine, moments, truths

TRUTH = truths(STACKS)
WHEN = [(name, moment) for name, truth in TRUTH.items() if truth.causes for moment in moments(name)]


def check(verdict: Verdict, truth: Truth) -> None:
    """What a dump of all ranks has to say."""
    first = verdict.causes[0]
    assert first.cause in truth.causes, f"{truth.done}: {verdict.summary}"
    if truth.fine:
        assert verdict.kind in ("healthy", "progressing"), verdict.summary
        assert not any(rank.culprit for rank in verdict.ranks)
    elif first.cause not in ("unresolved", *FINE):
        named = sorted({rank.rank for rank in verdict.culprits if rank.rank is not None})
        assert named == sorted(truth.culprits) or not named, f"{truth.done}: {verdict.summary}"
        assert not truth.stage or {rank.stage for rank in verdict.culprits} <= {truth.stage}, verdict.culprits
        assert first.evidence and first.remedy


@pytest.mark.parametrize(("name", "moment"), WHEN)
def test_dumps_of_all_hosts_together(name: str, moment: str) -> None:
    check(DumpContent.together(list(hosts(name, moment).values())).verdict(), TRUTH[name])


@pytest.mark.parametrize(("name", "moment"), [when for when in WHEN if machine(*when) is not None])
def test_one_dump_from_outside(name: str, moment: str) -> None:
    content = machine(name, moment)
    assert content is not None
    check(content.verdict(), TRUTH[name])


@pytest.mark.parametrize(("name", "moment"), [when for when in WHEN if len(hosts(*when)) > 1])
def test_one_host_alone_claims_no_more_than_it_sees(name: str, moment: str) -> None:
    truth = TRUTH[name]
    for host, content in hosts(name, moment).items():
        verdict = content.verdict()
        first = verdict.causes[0]
        assert first.cause in (*truth.causes, *truth.one_host) or first.confidence == "possible", (
            f"{host}: {verdict.summary}"
        )
        if truth.fine:
            assert first.cause in (*FINE, "unresolved"), f"{host}: {verdict.summary}"
        named = {rank.rank for rank in verdict.culprits if rank.rank is not None}
        assert named <= set(truth.culprits) or first.cause in truth.one_host or first.confidence == "possible", (
            f"{host}: {verdict.summary}"
        )
