"""Late or stuck, on real processes without a log: who is slow is never called hung, and who stands for good is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ncdiag.hang import Verdict, infer
from ncdiag.host import Host
from ncdiag.processes.sample import Options, sample
from tests.stacks.cases import Case, running


def verdict(fault: str, late_s: str, place: Path, window_s: float, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    monkeypatch.setenv("LATE_S", late_s)
    with running(Case(fault, "late", fault, torch=False), sys.executable, place) as ranks:
        return infer(sample(Host(), [rank.pid for rank in ranks], Options(window_s=window_s, native="none")).states)


@pytest.mark.parametrize(("fault", "late_s", "hint"), [
    ("sleeps", "20", "this sleep ends in "),
    ("sleeps_in_pieces", "20", "times meanwhile, and they did not: it polls, or works in small pieces"),
    ("lines", "20", " can write what it reads"),
    ("written_to_a_child", "running", " should read what it writes"),
    ("lock_of_a_thread", "20", "a thread of it is at release_late (late.py:"),
])  # fmt: skip
def test_who_may_only_be_late_is_named_and_not_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, late_s: str, hint: str
) -> None:
    told = verdict(fault, late_s, tmp_path, 1.2, monkeypatch)
    assert [row.rank for row in told.culprits] == [1] and told.causes[0].confidence == "possible", told.summary
    assert "late or stuck, which a look of 1 s does not tell" in told.summary and hint in told.summary, told.summary
    assert any("--window 40" in step for step in told.next), told.next


@pytest.mark.parametrize(("fault", "late_s"), [
    ("sleeps", "0.6"),
    ("sleeps_in_pieces", "0.6"),
    ("lines", "0.6"),
    ("lock_of_a_thread", "0.6"),
])  # fmt: skip
def test_a_look_that_is_longer_than_a_step_sees_that_it_gets_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, late_s: str
) -> None:
    told = verdict(fault, late_s, tmp_path, 2.5, monkeypatch)
    assert told.kind in ("progressing", "healthy") and not told.culprits, told.summary


@pytest.mark.parametrize(("fault", "late_s", "ground"), [
    ("sleeps", "1000000", "this sleep lasts 12 days more"),
    ("lock", "1", "no other thread of it runs that could end that"),
    ("pipe", "1", "nobody else can write into the pipe that it reads"),
    ("written", "1", "nobody else reads the pipe that it writes into"),
    ("typed", "1", "nothing but a key typed at /dev/pts/"),
])  # fmt: skip
def test_who_stands_for_good_is_likely_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, late_s: str, ground: str
) -> None:
    told = verdict(fault, late_s, tmp_path, 1.0, monkeypatch)
    assert [row.rank for row in told.culprits] == [1] and told.causes[0].confidence == "likely", told.summary
    assert ground in told.summary and not any("--window" in step for step in told.next), told.summary
