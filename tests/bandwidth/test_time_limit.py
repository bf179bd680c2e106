"""The time that a person gives holds for everything together: silent nodes, the run of all ranks, the pairs."""

from __future__ import annotations

import sys
import time

import pytest

from ncdiag.bandwidth import blame, judge
from ncdiag.bandwidth.isolation.search import Search
from ncdiag.bandwidth.job import JOINING_S, Job, Outcome, Place, RankOutcome
from ncdiag.bandwidth.limit import Limit
from ncdiag.bandwidth.measure import Report
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.reach import ProcessLine, Way
from ncdiag.model import Finding

from .test_lost_nodes import answering, ending, measured


def silent(node: str) -> Way:
    """It neither answers nor heeds its leash, as an ssh whose connection hangs."""
    return Way(node, lambda: ProcessLine([sys.executable, "-S", "-c", "import time; time.sleep(120)"]))


def told(report: Report) -> list[str]:
    return [finding.summary for finding in report.findings]


def test_silent_nodes_do_not_outlast_it() -> None:
    began = time.monotonic()
    report = measured(*map(silent, ("n1", "n2", "n3")), limit_s=2)
    assert time.monotonic() - began < 6
    assert told(report) == [
        *(f"{node} does not take part: no answer within 2 s of --timeout 2" for node in ("n1", "n2", "n3")),
        "nothing was measured: no node answers, and bandwidth is measured between two",
    ]
    assert "goes on" not in str(report.findings[0].remedy)


def test_a_silent_node_leaves_half_of_it_to_the_others() -> None:
    """These say what they are and then nothing: the run of both has what is left, and is not called stuck after so little."""
    began = time.monotonic()
    report = measured(answering("n1"), silent("n3"), answering("n2"), limit_s=6)
    assert time.monotonic() - began < 12
    first, second, *others = report.findings
    assert [one.summary for one in others if "fell silent" in one.summary] == [
        f"{node} fell silent during the run: it no longer answers" for node in ("n1", "n2")
    ]
    assert first.summary == "n3 does not take part: no answer within 3 s of --timeout 6"
    assert second.status.value == "unknown"
    assert second.summary.startswith(
        "the time of --timeout 6 was up before the run of all 2 ranks was at its end: at star"
    )


def test_who_answers_at_once_is_not_waited_for() -> None:
    began = time.monotonic()
    measured(ending("n1", "refused"), ending("n2", "refused"), limit_s=60)
    assert time.monotonic() - began < 10


def test_what_is_left_of_it() -> None:
    assert Limit().left(90) == 90 and not Limit().short_of(90)
    assert 19 < Limit(20).left(90) <= 20 and Limit(20).left(3) == 3
    assert Limit(20).short_of(60) == "20 s are left of --timeout 20, and it may take 60 s"
    assert Limit(0).left(5) == 0


def ended(took_s: float, moved_s: float, *, rows: bool, gap_s: float = 1.0, cut: bool = False) -> Outcome:
    places = [Place(0, 0), Place(1, 0)]
    ranks = [RankOutcome(place, [{}] if rows else [], stage="all_reduce of 64 bytes", late=True) for place in places]
    return Outcome(Job(places, {"budget_s": 2.0}), ranks, took_s, moved_s, gap_s, cut)


@pytest.mark.parametrize(
    ("outcome", "given_s", "status", "cause"),
    [
        (ended(600, 598, rows=True), None, "warn", "slow-not-hung"),
        (ended(600, 598, rows=True), 600, "unknown", None),
        (ended(600, 500, rows=True), None, "fail", "unresolved"),
        (ended(600, 500, rows=True), 600, "fail", "unresolved"),
        (ended(600, 500, rows=True, gap_s=40), None, "warn", "slow-not-hung"),
        (ended(20, 1, rows=False), 20, "unknown", None),
        (ended(JOINING_S + 2, 1, rows=False), 200, "fail", "unresolved"),
        (ended(40, 39, rows=True, cut=True), 60, "fail", "unresolved"),
    ],
)
def test_slow_is_not_stuck(outcome: Outcome, given_s: float | None, status: str, cause: str | None) -> None:
    (finding,) = judge.stuck(outcome, ["n1", "n2"], given_s=given_s)
    assert (finding.status.value, finding.cause) == (status, cause)
    assert f"{outcome.quiet_s:.0f} s after a rank last got further" in finding.summary


def test_pairs_that_were_not_tested_are_told() -> None:
    finding: Finding
    (finding,) = blame.isolated(Isolation(unfinished="the pairs were ended before round 3: 4 s are left"))
    assert finding.status.value == "unknown" and "--pair-timeout" in str(finding.remedy)


def test_a_search_that_is_stopped_tells_what_it_knows() -> None:
    """n2 has got stuck with every partner so far; after the rounds that were run this is told, and no round more is asked for."""
    names = [f"n{number}" for number in range(40)]
    search = Search(names, dict.fromkeys(names, ("mlx5_0", "mlx5_1")))
    for _ in range(4):
        search.take({test: None if "n2" in (test.one, test.other) else 97.0 for test in search.next_round()})
    asked = search.next_round()
    search.stop()
    assert {test.rail for test in asked} == {"mlx5_0"} and search.rounds == 4
    assert search.next_round() == []
    assert [(one.kind, one.nodes) for one in search.verdicts] == [("node", ("n2",))]
