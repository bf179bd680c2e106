"""The inference over real runs of real vLLM with real faults, in the lab folder beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.hang import infer
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from tests.hang import evidence
from tests.hang.truth import FINE, MIDWAY, TRUTH, Truth, check

LAB = Path(__file__).parents[3] / "shared" / "lab" / "vllm-cpu" / "evidence"
RUNS = [name for name in TRUTH if (LAB / name).is_dir()]
pytestmark = pytest.mark.skipif(
    not RUNS, reason="the lab's evidence (../shared/lab/vllm-cpu) is not beside the checkout"
)
STARTS = [name for name in RUNS if set(TRUTH[name].causes) & set(FINE) and (LAB / name / "samples.jsonl.gz").is_file()]


@pytest.mark.parametrize("name", RUNS)
def test_end_of_the_run(name: str) -> None:
    check(infer(evidence.states(evidence.read(LAB / name))), TRUTH[name])


@pytest.mark.parametrize("name", RUNS)
def test_end_of_the_run_with_its_logs(name: str) -> None:
    """What the processes do not say any more, their logs do."""
    run = evidence.read(LAB / name)
    raw = {log: "\n".join(lines).encode() for log, lines in evidence.log_lines(run).items()}
    told = of_streams(Stream(log, iter([text]), text) for log, text in raw.items()).verdict.causes
    assert infer(evidence.states(run), logs=told).causes[0].cause in TRUTH[name].causes or TRUTH[name].honest == (
        "unresolved",
    )


@pytest.mark.parametrize("name", [name for name in MIDWAY if name in RUNS])
def test_while_it_hangs(name: str) -> None:
    states = evidence.states(evidence.read(LAB / name), at=MIDWAY[name], gone=False)
    check(infer(states), Truth(TRUTH[name].causes, TRUTH[name].culprit, ("unresolved", "rank-missing")))


@pytest.mark.parametrize("name", STARTS)
def test_healthy_start_is_never_accused(name: str) -> None:
    """At every moment of a start that comes to an end: no cause above `possible`, nobody named with more."""
    run = evidence.read(LAB / name)
    for moment in sorted({round(row["t"]) for row in run.samples})[2::4]:
        verdict = infer(evidence.states(run, at=float(moment), gone=False))
        first = verdict.causes[0]
        assert first.cause in FINE or first.confidence == "possible", f"at {moment} s: {verdict.summary}"
