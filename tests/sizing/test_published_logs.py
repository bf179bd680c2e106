"""Against start-up lines that people published from real GPUs, with the difference written down.

From each: "Model loading took A GiB", "Available KV cache memory: B GiB", "GPU KV cache size: C tokens". The tokens
that B holds are arithmetic and must agree; A must agree within 2 %; B itself is an estimate of ours, and `off_gib` is
how much more (+) or less (-) the plan promises than that engine found.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ncdiag.sizing.cache import capacity
from ncdiag.sizing.config import parse_config
from ncdiag.sizing.gpus import parse_gpus
from ncdiag.sizing.layouts import Layout, Load, Model, layouts
from ncdiag.sizing.plan import Request, build_model
from tests.sizing.public_models import CONFIGS, DEEPSEEK_V3

GIB = 2**30
FP8_DYNAMIC: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
        }
    },
}
FP8_BLOCK: dict[str, Any] = {**DEEPSEEK_V3["quantization_config"], "modules_to_not_convert": ["lm_head"]}
AWQ: dict[str, Any] = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


@dataclass(frozen=True)
class Log:
    """One published start-up."""

    config: dict[str, Any]
    gpus: str
    tp: int
    utilization: float
    max_model_len: int
    loaded_gib: float | None  # None: the line was not quoted
    available_gib: float
    tokens: int
    off_gib: float | None  # ours - theirs, of "Available KV cache memory"; None: their utilisation is not known
    kv_dtype: str = "auto"


LOGS: dict[str, Log] = {
    # vLLM 0.11.2, Llama-3.3-70B-Instruct-FP8-dynamic, 4 H200
    "llama-70b-fp8-h200-tp4": Log(
        {**CONFIGS["Llama-3.1-70B"], "quantization_config": FP8_DYNAMIC},
        "H200x4",
        4,
        0.9,
        8192,
        16.9619,
        106.17,
        1391552,
        -0.5,
    ),
    # vLLM 0.11.2, DeepSeek-R1-0528, 8 H200
    "deepseek-r1-h200-tp8": Log(DEEPSEEK_V3, "H200x8", 8, 0.9, 8192, 79.739, 41.60, 635648, 0.9),
    # vLLM 0.21.0, Qwen2.5-14B-Instruct, 1 H100, --max-num-seqs 256
    "qwen2.5-14b-h100": Log(CONFIGS["Qwen2.5-14B"], "H100x1", 1, 0.9, 4096, None, 41.43, 226240, -0.3),
    # Llama-3.1-8B, RTX A5000 (24 GB), enforce_eager
    "llama-8b-a5000": Log(CONFIGS["Llama-3.1-8B"], "24GBx1", 1, 0.9, 2048, None, 5.29, 43296, -0.5),
    # vLLM 0.9, Qwen3-235B-A22B-FP8, 4 H100: a release whose profile counted the weights' loading peak too
    "qwen3-235b-fp8-h100-tp4": Log(
        {**CONFIGS["Qwen3-235B-A22B"], "quantization_config": FP8_BLOCK},
        "H100x4",
        4,
        0.9,
        40960,
        None,
        8.11,
        178880,
        4.4,
    ),
    # vLLM 0.14, Llama-3.1-70B AWQ-INT4, RTX PRO 6000 (95 GB)
    "llama-70b-awq-pro6000": Log(
        {**CONFIGS["Llama-3.1-70B"], "torch_dtype": "float16", "quantization_config": AWQ},
        "RTX-PRO-6000x1",
        1,
        0.9,
        4096,
        37.09,
        38.71,
        126832,
        None,
    ),
    # Llama-3.3-70B FP8 on one 80 GB GPU, --kv-cache-dtype fp8, --max-model-len 32000
    "llama-70b-fp8-one-gpu": Log(
        {**CONFIGS["Llama-3.1-70B"], "quantization_config": FP8_DYNAMIC},
        "H100x1",
        1,
        0.95,
        32000,
        67.7,
        5.11,
        33504,
        None,
        "fp8",
    ),
}


def planned(log: Log) -> tuple[Model, Layout]:
    cluster = parse_gpus([log.gpus])
    request = Request(
        Path("config.json"), cluster, log.max_model_len, kv_dtype=log.kv_dtype, utilization=log.utilization
    )
    model, _ = build_model(parse_config(log.config, Path("config.json")), None, request)
    load = Load(log.max_model_len, 1, log.utilization, cluster.gpu.batched_tokens)
    found = layouts(model, cluster, load)
    return model, next(layout for layout in found if (layout.tp, layout.pp, layout.dp) == (log.tp, 1, 1))


@pytest.mark.parametrize("name", LOGS)
def test_tokens_of_the_memory_they_had(name: str) -> None:
    log = LOGS[name]
    model, _ = planned(log)
    caches = [cache.on_rank(log.tp) for layer in model.caches for cache in layer]
    tokens = capacity(log.available_gib * GIB, caches, log.max_model_len, 16384)
    assert tokens == pytest.approx(log.tokens, rel=0.02)


@pytest.mark.parametrize("name", [name for name, log in LOGS.items() if log.loaded_gib])
def test_weights_of_one_gpu(name: str) -> None:
    _, layout = planned(LOGS[name])
    assert layout.weights_bytes / GIB == pytest.approx(LOGS[name].loaded_gib, rel=0.02)


@pytest.mark.parametrize("name", [name for name, log in LOGS.items() if log.off_gib is not None])
def test_estimated_pool_is_as_far_off_as_written_down(name: str) -> None:
    _, layout = planned(LOGS[name])
    assert layout.pool_bytes / GIB - LOGS[name].available_gib == pytest.approx(LOGS[name].off_gib, abs=0.3)
