"""The formulas against the real thing: a model built from the same config on the meta device, parameter by parameter.

Runs where transformers and torch are installed: here, or in the interpreter that NCDIAG_LAB_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncdiag.sizing.config import parse_config
from ncdiag.sizing.decoder import build, open_decoder

SMALL: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 320,
    "num_hidden_layers": 7,
    "num_attention_heads": 6,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
}
PLAIN = [
    "llama",
    "arcee",
    "smollm3",
    "granite",
    "mistral",
    "ministral3",
    "mixtral",
    "minimax_m2",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "phimoe",
    "gpt_oss",
    "gpt_neox",
    "starcoder2",
    "stablelm",
    "cohere",
    "cohere2",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "apertus",
    "granitemoe",
    "granitemoeshared",
    "glm",
    "glm4",
    "glm4_moe",
    "exaone4",
    "seed_oss",
    "ernie4_5",
    "nemotron",
]
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "qwen2_moe": {"mlp_only_layers": [1], "decoder_sparse_step": 2, "num_experts": 6, "num_key_value_heads": 3},
    "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 64, "head_dim": 48, "num_key_value_heads": 2},
    "helium": {"head_dim": 32, "num_key_value_heads": 2},
    "qwen3": {"head_dim": 48, "num_key_value_heads": 2, "attention_bias": True},
    "gemma3_text": {"head_dim": 40, "num_key_value_heads": 2},
    "gpt_oss": {"num_local_experts": 4, "head_dim": 32, "num_key_value_heads": 2, "num_attention_heads": 4},
    "phi": {"qk_layernorm": True, "num_key_value_heads": 3},
    "stablelm": {"use_qkv_bias": True, "use_parallel_residual": True, "num_key_value_heads": 2},
    "cohere": {"use_qk_norm": True, "num_key_value_heads": 2},
    "glm4_moe": {
        "use_qk_norm": True,
        "attention_bias": True,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "first_k_dense_replace": 3,
        "num_key_value_heads": 2,
    },
    "glm": {"num_key_value_heads": 2, "head_dim": 32},
    "seed_oss": {"num_key_value_heads": 2, "attention_out_bias": True},
    "ernie4_5": {"use_bias": True, "head_dim": 32},
    "nemotron": {"num_key_value_heads": 2, "mlp_bias": True, "head_dim": 32, "partial_rotary_factor": 0.5},
    "starcoder2": {"use_bias": False, "num_key_value_heads": 2},
    "phimoe": {"attention_bias": True, "lm_head_bias": True, "num_key_value_heads": 2, "num_local_experts": 4},
    "minimax_m2": {"num_local_experts": 4, "num_experts_per_tok": 2, "num_key_value_heads": 2, "head_dim": 32},
}
OWN: dict[str, dict[str, Any]] = {  # families whose sizes go by other names
    "gpt2": {"n_embd": 96, "n_layer": 3, "n_head": 4, "n_positions": 64, "n_inner": 200, "vocab_size": 500},
    "gptj": {"n_embd": 96, "n_layer": 3, "n_head": 4, "n_positions": 64, "rotary_dim": 8, "vocab_size": 500},
    "gpt_bigcode": {"n_embd": 96, "n_layer": 3, "n_head": 4, "n_positions": 64, "multi_query": True, "vocab_size": 500},
    "falcon": {
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "vocab_size": 500,
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
    },
    "opt": {
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "ffn_dim": 128,
        "vocab_size": 500,
        "word_embed_proj_dim": 48,
        "max_position_embeddings": 64,
    },
    "bloom": {"hidden_size": 96, "n_layer": 3, "n_head": 4, "vocab_size": 500},
    "mpt": {"d_model": 96, "n_layers": 3, "n_heads": 4, "vocab_size": 500},
    "llama4_text": {
        **SMALL,
        "intermediate_size_mlp": 400,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_local_experts": 4,
        "interleave_moe_layer_step": 2,
    },
    "deepseek_v2": {
        **SMALL,
        "q_lora_rank": None,
        "kv_lora_rank": 64,
        "n_routed_experts": 6,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 48,
        "first_k_dense_replace": 2,
        "num_key_value_heads": 6,
    },
    "deepseek_v3": {
        **SMALL,
        "q_lora_rank": 80,
        "kv_lora_rank": 64,
        "n_routed_experts": 8,
        "moe_intermediate_size": 48,
        "n_group": 2,
        "topk_group": 1,
        "num_key_value_heads": 6,
        "attention_bias": True,
    },
    "qwen3_next": {
        **SMALL,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_experts": 6,
        "moe_intermediate_size": 48,
        "shared_expert_intermediate_size": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts_per_tok": 2,
    },
    "qwen3_5_text": {
        **SMALL,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
    },
    "gemma4_text": {
        **SMALL,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_size_per_layer_input": 16,
        "vocab_size_per_layer_input": 900,
    },
    "granitemoehybrid": {
        **SMALL,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "mamba_n_heads": 12,
        "mamba_d_head": 32,
        "layer_types": ["mamba", "mamba", "attention", "mamba", "mamba", "attention", "mamba"],
    },
    "bamba": {**SMALL, "num_key_value_heads": 2, "mamba_n_heads": 12, "mamba_d_head": 32, "attn_layer_indices": [2]},
    "jamba": {**SMALL, "num_key_value_heads": 2, "num_experts": 4, "num_hidden_layers": 9},
    "falcon_h1": {
        **SMALL,
        "num_key_value_heads": 2,
        "mamba_d_ssm": 128,
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_rms_norm": True,
    },
    "mamba": {"hidden_size": 96, "num_hidden_layers": 3, "vocab_size": 500},
    "mamba2": {
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "vocab_size": 500,
        "num_heads": 6,
        "head_dim": 32,
        "n_groups": 2,
    },
    "lfm2": {
        **SMALL,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv"],
    },
    "minicpm3": {**SMALL, "q_lora_rank": 80, "kv_lora_rank": 64, "num_key_value_heads": 6},
    "deepseek_v32": {
        **SMALL,
        "q_lora_rank": 80,
        "kv_lora_rank": 64,
        "n_routed_experts": 8,
        "moe_intermediate_size": 48,
        "n_group": 2,
        "topk_group": 1,
        "num_key_value_heads": 6,
    },
}
VISION: dict[str, dict[str, Any]] = {
    name: {}
    for name in (
        ["llava", "mistral3", "gemma3", "llama4", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "paligemma"]
    )
}
COUNT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
out = {}
for key, (kind, values) in json.load(sys.stdin).items():
    auto = AutoModelForImageTextToText if key.startswith("vision/") else AutoModelForCausalLM
    try:
        config = AutoConfig.for_model(kind, **values)
        with torch.device("meta"):
            model = auto.from_config(config)
    except Exception as error:
        out[key] = {"error": f"{type(error).__name__}: {error}"[:200]}
        continue
    saved = set(model.state_dict())
    extra = sum(b.numel() for n, b in model.named_buffers() if n in saved)
    out[key] = {"config": json.loads(config.to_json_string(use_diff=False)),
                "parameters": sum(p.numel() for p in model.parameters()) + extra}
print("COUNTS" + json.dumps(out))
"""


def _python() -> str | None:
    named = os.environ.get("NCDIAG_LAB_PYTHON")
    for python in (named, sys.executable):
        if (
            python
            and subprocess.run(
                [python, "-c", "import torch, transformers"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            return python
    return None


def _cases() -> dict[str, tuple[str, dict[str, Any]]]:
    cases = {
        f"default/{kind}": (kind, {**SMALL, "num_key_value_heads": 6} if kind != "gpt_neox" else dict(SMALL))
        for kind in PLAIN
    }
    cases.update({f"variant/{kind}": (kind, {**SMALL, **values}) for kind, values in VARIANTS.items()})
    cases.update({f"own/{kind}": (kind, values) for kind, values in OWN.items()})
    cases.update({f"vision/{kind}": (kind, values) for kind, values in VISION.items()})
    return cases


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    python = _python()
    if python is None:
        pytest.skip("transformers with torch is not installed (NCDIAG_LAB_PYTHON can name an interpreter)")
    done = subprocess.run(
        [python, "-W", "ignore", "-c", COUNT],
        input=json.dumps(_cases()),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("COUNTS")), None)
    assert line, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(line.removeprefix("COUNTS"))
    return found


@pytest.mark.parametrize("key", _cases())
def test_formula_equals_the_model(counts: dict[str, Any], key: str) -> None:
    said = counts[key]
    if "error" in said:
        pytest.skip(f"this transformers cannot build it: {said['error']}")
    inventory = build(open_decoder(parse_config(said["config"], Path("config.json"))))
    mine = inventory.parameters - sum(weight.numel for weight in inventory.unloaded)
    assert mine == said["parameters"]
