"""Planned sizes against the model and the GPUs there are."""

from __future__ import annotations

from typing import Any

import pytest

from ncdiag.model import NodeFacts, Plan, Snapshot
from ncdiag.sizing import fits

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


def snapshot(plan: Plan, *gpus: int | None, config: dict[str, Any] | None = None) -> Snapshot:
    nodes = {}
    for number, count in enumerate(gpus, 1):
        name = f"gpu{number:02d}"
        facts: dict[str, Any] = {"model-config": {"path": "/models/m/config.json", "config": config, "error": None}}
        if count is None:
            nodes[name] = NodeFacts(name, unreachable="timed out")
            continue
        facts["gpus"] = {
            "gpus": [{}] * count,
            "driver": None,
            "cuda": None,
            "open_modules": None,
            "hidden": [],
            "why": None,
        }
        nodes[name] = NodeFacts(name, facts)
    return Snapshot(nodes, plan)


@pytest.mark.parametrize(
    "plan, gpus, status, cause",
    [
        (Plan(tp=8, pp=2), (8, 8), "ok", None),
        (Plan(tp=8, pp=4), (8, 8), "fail", "parallel-size-mismatch"),
        (Plan(tp=8, pp=4), (8, None), "unknown", "parallel-size-mismatch"),
        (Plan(tp=16), (8, 8), "warn", "rank-layout-wrong"),
        (Plan(tp=8), (8, 8), "ok", None),
        (Plan(tp=4, pp=4), (8, 7, 1), "fail", "rank-layout-wrong"),
        (Plan(dp=2), (1, 1), "ok", None),
        (Plan(tp=2), (0, 0), "unknown", "visible-devices-conflict"),
    ],
)
def test_gpus(plan: Plan, gpus: tuple[int | None, ...], status: str, cause: str | None) -> None:
    (finding,) = fits.judge(snapshot(plan, *gpus))
    assert (finding.status.value, finding.cause) == (status, cause), finding.summary


def test_an_engine_for_cpus_wants_no_gpu() -> None:
    nodes = snapshot(Plan(tp=2), 0, 0)
    for node in nodes.nodes.values():
        node.facts["engine-versions"] = {"packages": {"torch": "2.9.0+cpu", "vllm": "0.12.0"}}
    (finding,) = fits.judge(nodes)
    assert finding.status.value == "skip"


def test_node_with_a_missing_gpu_is_named() -> None:
    (finding,) = fits.judge(snapshot(Plan(tp=8, pp=4), 8, 8, 7, 8, 1))
    assert (
        finding.status.value == "fail" and "only 3 fit (8 on gpu[01-02,04]; 7 on gpu03; 1 on gpu05)" in finding.summary
    )


@pytest.mark.parametrize(
    "sizes, status, cause, words",
    [
        ({"tp": 8}, "ok", None, "divides by TP 8"),
        ({"tp": 6}, "fail", "tp-not-dividing", "32 attention heads do not divide by TP 6"),
        ({"tp": 4, "pp": 33}, "fail", "parallel-size-mismatch", "more than the model's 32 layers"),
    ],
)
def test_model(sizes: dict[str, Any], status: str, cause: str | None, words: str) -> None:
    first = next(fits.judge(snapshot(Plan(model="/models/m", **sizes), 8, 8, config=LLAMA)))
    assert (first.status.value, first.cause) == (status, cause) and words in first.summary


def test_possible_sizes_are_offered() -> None:
    first = next(fits.judge(snapshot(Plan(tp=6, model="/models/m"), 8, config=LLAMA)))
    assert first.expected == [1, 2, 4] and "--tensor-parallel-size 4" in (first.remedy or "")


def test_config_that_nobody_has_or_understands_is_unknown() -> None:
    assert next(fits.judge(snapshot(Plan(tp=8, model="/models/m"), 8))).status.value == "unknown"
    assert (
        next(fits.judge(snapshot(Plan(tp=8, model="/models/m"), 8, config={"model_type": "none"}))).status.value
        == "unknown"
    )


def test_without_a_plan_nothing_is_said() -> None:
    assert list(fits.judge(snapshot(Plan(), 8))) == []
