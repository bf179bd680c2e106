"""What is only possible beside an answer: kept where it may still be the reason, told as seen with it where it is a guess."""

from __future__ import annotations

from ncdiag.hang import infer
from ncdiag.hang.settled import settled
from ncdiag.model import Cause, Evidence
from tests.hang.build import rank


def guess(slug: str, confidence: str = "possible") -> Cause:
    return Cause(slug, confidence, f"fits: {slug}", evidence=[Evidence("engine.log", slug, 7)])


def test_what_a_log_alone_makes_possible_is_no_cause_beside_a_rank_that_died() -> None:
    states = [rank(0, "node-a", "queue"), rank(1, "node-a", None, state="Z")]
    told = infer(states, logs=[guess("slow-load-peer-timeout"), guess("node-ip-wrong-interface")]).causes
    assert [cause.cause for cause in told] == ["rank-died"]
    assert [item.text for item in told[0].also_seen] == ["slow-load-peer-timeout", "node-ip-wrong-interface"]


def test_what_a_log_makes_likely_stays() -> None:
    states = [rank(0, "node-a", "queue"), rank(1, "node-a", None, state="Z")]
    assert "weights-corrupt" in [
        cause.cause for cause in infer(states, logs=[guess("weights-corrupt", "likely")]).causes
    ]


def test_beside_what_is_only_possible_guesses_stay() -> None:
    states = [rank(0, "node-a", "all-reduce"), rank(1, "node-a", "own", wchan="hrtimer_nanosleep")]
    told = infer(states, logs=[guess("storage-slow")])
    assert [cause.confidence for cause in told.causes] == ["possible", "possible"]


def test_under_a_sure_cause_only_what_would_bring_it_about_stays() -> None:
    sure, because, other = Cause("cuda-oom", "sure", "x"), guess("rank-died"), guess("mtu-mismatch")
    assert settled([sure, because, other], []) == [sure]
    stopped = Cause("rank-died", "sure", "y")
    assert settled([stopped, guess("cuda-oom")], [])[1].cause == "cuda-oom"
    assert settled([guess("cuda-oom")], []) == [guess("cuda-oom")]
