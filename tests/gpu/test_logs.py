"""Logs of real NCCL and real vLLM on GPUs: what they carry is named, what they do not carry is not claimed."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import diagnose
from tests.gpu.captures import LOGS, truths

TRUTH = truths(LOGS)


@pytest.mark.parametrize("name", [name for name in TRUTH if any((LOGS / name).glob("*.log.gz"))])
def test_logs_of_all_ranks(name: str) -> None:
    truth = TRUTH[name]
    causes = diagnose([str(file) for file in sorted((LOGS / name).glob("*.log.gz"))]).verdict.causes
    said = [(cause.cause, cause.confidence, cause.summary) for cause in causes]
    if truth.fine:
        assert all(cause.cause in truth.logs or cause.confidence == "possible" for cause in causes), said
    elif truth.decidable != "no":
        assert {cause.cause for cause in causes[: 1 if truth.decidable == "yes" else 3]} & set(truth.logs), said
    assert all(cause.cause in truth.logs for cause in causes if cause.confidence == "sure"), said


@pytest.mark.parametrize(
    ("name", "rank"), [("stopped-rank-of-four", "2"), ("stopped-rank-of-eight", "5"), ("killed-rank-of-eight", "7")]
)
def test_the_rank_that_says_nothing_while_the_others_wait_in_vain_is_named(name: str, rank: str) -> None:
    """Slow sockets explain no time-out: what only slows comes after it."""
    causes = diagnose([str(file) for file in sorted((LOGS / name).glob("*.log.gz"))]).verdict.causes
    first = {cause.cause: cause for cause in causes[:3]}
    assert set(first) == {"rank-stuck-outside-collective", "rank-stopped", "rank-died"}
    assert {(cause.where["rank"], cause.confidence) for cause in first.values()} == {(rank, "possible")}
    assert ("net-fallback-slow", "likely") in {(cause.cause, cause.confidence) for cause in causes[3:]}


def test_without_the_log_of_the_silent_rank_nobody_is_named() -> None:
    files = sorted((LOGS / "stopped-rank-of-eight").glob("*.log.gz"))
    causes = diagnose([str(file) for file in files if "rank5" not in file.name]).verdict.causes
    assert not any(str(cause.where.get("rank")) == "5" for cause in causes)
