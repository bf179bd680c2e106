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
