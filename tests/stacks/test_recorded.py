"""Every recorded program is concluded right: the rank, its stage, the cause; healthy and slow ones are not accused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncdiag.hang import Verdict, infer
from ncdiag.model import RankState
from tests.stacks.cases import CASES, Case

RECORDED = Path(__file__).parent / "recorded"


def states(name: str) -> list[RankState]:
    """The rank states of one recording."""
    return [RankState.from_dict(state) for state in json.loads((RECORDED / f"{name}.json").read_text())["states"]]


def check(case: Case, verdict: Verdict) -> None:
    """That a verdict says what is the matter with `case`."""
    assert verdict.causes[0].cause in case.causes, verdict.summary
    assert case.said in verdict.summary, verdict.summary
    named = sorted(rank.rank for rank in verdict.culprits if rank.rank is not None)
    assert named and set(named) <= set(case.culprits) if case.some else named == sorted(case.culprits)
    if case.stage is not None:
        assert {rank.stage for rank in verdict.culprits} <= {case.stage}
    if set(case.causes) <= {"healthy", "slow-not-hung"}:
        assert verdict.kind in ("healthy", "progressing")
    else:
        assert verdict.causes[0].evidence and verdict.causes[0].remedy


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recorded(case: Case) -> None:
    check(case, infer(states(case.name)))
