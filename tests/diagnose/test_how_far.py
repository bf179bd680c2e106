"""A log that only ends: how much it says of a job that showed no error so far."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream

INIT = [
    f"gpu07:{70 + rank}:{80 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x{rank}a rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0x5 - Init {{}}"
    for rank in range(2)
]
START, COMPLETE = ([line.format(what) for line in INIT] for what in ("START", "COMPLETE"))
STEPS = [f"step {step}/1000 | loss 2.{step} | lr 1e-4" for step in range(1, 9)]
MEGATRON = [
    f" iteration {step:8d}/  500000 | elapsed time per iteration (ms): 301.{step} | lm loss: 2.1{step} |"
    for step in range(1, 3)
]
SPEED = [
    f"[timer.py:260:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=11.{step}"
    for step in range(1, 9)
]
BAR = [
    f"Epoch 0: {step * 25:3d}%|{'█' * step}| {step * 30}/120 [00:{step}0<01:00, 3.17it/s, loss=2.{step}]"
    for step in range(1, 5)
]
ROWS = [
    f"  {1 << size:12d}  {1 << (size - 2):12d}     float     sum      -1   9063.6  236.93  444.25      0   9089.4  236.26  443.0      0"
    for size in range(20, 26)
]
VLLM = [
    "INFO [api_server.py:1] vLLM API server version 0.11.0",
    "INFO [gpu_model_runner.py:2] Starting to load model /models/m...",
]
READY = [*VLLM, "INFO:     Application startup complete."]
SERVES = [*READY, 'INFO:     192.0.2.7:40000 - "POST /v1/completions HTTP/1.1" 200 OK']

CASES = {
    "nothing but a greeting": (["starting the job", "reading config.yaml"], "unresolved", "possible"),
    "NCCL begins": (START, "unresolved", "possible"),
    "NCCL is ready": ([*START, *COMPLETE], "healthy", "possible"),
    "vLLM loads": (VLLM, "unresolved", "possible"),
    "vLLM is up": (READY, "healthy", "likely"),
    "vLLM serves": (SERVES, "healthy", "likely"),
    "steps": (STEPS, "healthy", "possible"),
    "a torn step": ([*STEPS, "step 9/10"], "healthy", "possible"),
    "two steps": (MEGATRON, "healthy", "possible"),
    "speeds": (SPEED, "healthy", "possible"),
    "an epoch's bar": (BAR, "healthy", "possible"),
    "the last step": ([*STEPS, "step 1000/1000 | loss 1.1 | lr 0"], "healthy", "likely"),
    "a training that says its end": ([*STEPS, "Training complete"], "healthy", "likely"),
    "an end, then another training": ([*STEPS, "Training complete", *STEPS], "healthy", "possible"),
    "rows of a benchmark": (ROWS, "healthy", "possible"),
    "a whole benchmark": ([*ROWS, "# Avg bus bandwidth    : 444.2"], "healthy", "likely"),
    "Ray on one node": (["2026-01-02 10:00:00,004\tSUCC scripts.py:875 -- Ray runtime started."], "healthy", "possible"),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "cause", "confidence"), CASES.values(), ids=CASES)
def test_no_more_is_said_than_the_end_carries(lines: list[str], cause: str, confidence: str) -> None:
    raw = "\n".join([*lines, ""]).encode()
    first = of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes[0]
    assert (first.cause, first.confidence) == (cause, confidence)
    if (cause, confidence) == ("healthy", "possible"):
        assert "is not in what was given" in first.summary


def test_a_bar_that_grows_is_slow_and_no_start_that_stands() -> None:
    bars = [
        "Loading safetensors checkpoint shards:   0% Completed | 0/30 [00:00<?, ?it/s]",
        "Loading safetensors checkpoint shards:   3% Completed | 1/30 [00:12<05:48, 12.02s/it]",
    ]
    raw = "\n".join([*VLLM, *bars, ""]).encode()
    causes = of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes
    assert [cause.cause for cause in causes] == ["slow-not-hung"]
