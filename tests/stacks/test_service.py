"""Ranks that serve and have nothing to do: nobody is late. Who waits for an answer is not idle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ncdiag.hang import Verdict, infer
from ncdiag.host import Host
from ncdiag.processes.sample import Options, sample
from tests.stacks.cases import Case, running


def verdict(fault: str, place: Path) -> Verdict:
    with running(Case(fault, "service", fault, world=2, torch=False), sys.executable, place) as ranks:
        return infer(sample(Host(), [rank.pid for rank in ranks], Options(window_s=0.8, native="none")).states)


@pytest.mark.parametrize(
    "fault", ["http_server", "http_thread", "accepts", "selects", "in_asyncio", "queue", "one_of_them"]
)
def test_ranks_that_wait_for_work(tmp_path: Path, fault: str) -> None:
    told = verdict(fault, tmp_path)
    assert told.kind == "healthy" and not told.culprits, told.summary
    assert "none of the ranks is in a collective" in told.summary
    assert told.causes[0].confidence == ("possible" if fault == "queue" else "likely")


def test_who_waits_for_an_answer_is_not_idle(tmp_path: Path) -> None:
    assert verdict("client", tmp_path).kind != "healthy"
