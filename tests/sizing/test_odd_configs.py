"""Numbers that no model has: each gets one clear message, and none is quietly taken for another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ncdiag.report.plan import render
from ncdiag.sizing.config import LEAST, ConfigError
from ncdiag.sizing.gpus import parse_gpus
from ncdiag.sizing.plan import Request, make_plan

DENSE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS = {**DENSE, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
WIDE = {"head_dim": 128}


def warnings(tmp_path: Path, config: dict[str, Any], gpus: str = "H100x8") -> list[str]:
    """What is told; the plan is shown as text and as JSON on the way, which must not fail either."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = make_plan(Request(tmp_path, parse_gpus([gpus])))
    assert render(plan) and json.dumps(plan, allow_nan=False)
    found: list[str] = plan["warnings"]
    return found


def refused(tmp_path: Path, config: dict[str, Any]) -> str:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError) as caught:
        make_plan(Request(tmp_path, parse_gpus(["H100x8"])))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{tmp_path}/config.json: ")


SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "head_dim",
    "intermediate_size",
)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize("value", [0, -1, 2.5, 1e30, True, "32", [], {}, float("nan")])
def test_a_size_that_is_none(tmp_path: Path, key: str, value: Any, nested: bool) -> None:
    if key == "intermediate_size" and value == []:
        return  # a list of widths, none of them given
    text = {**DENSE, key: value}
    config = {"model_type": "llava", "text_config": text} if nested else text
    assert refused(tmp_path, config).startswith(f"{key} is {value!r}; expected ")


def test_bounds_begin_where_models_do() -> None:
    assert set(SIZES) <= LEAST.keys()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"num_attention_heads": 31},
            "31 attention heads cannot share 8 KV heads evenly: num_attention_heads must be a multiple",
        ),
        ({"num_attention_heads": 8, "num_key_value_heads": 32}, "8 attention heads cannot share 32 KV heads evenly"),
        ({"intermediate_size": [14336, 14336]}, "intermediate_size has 2 entries for 32 layers; expected one a layer"),
        ({"kv_lora_rank": "512"}, "kv_lora_rank is '512'; expected a whole number, 0 or more"),
        ({"num_hidden_layers": 100_000}, "num_hidden_layers is 100000; expected 1 to 4,096"),
        ({"text_config": 32}, "text_config is 32; expected an object"),
        ({"text_config": ["llama"]}, "text_config is ['llama']; expected an object"),
    ],
)
def test_numbers_of_no_model(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    assert refused(tmp_path, {**DENSE, **change}).startswith(told)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_experts_per_tok": 33}, "a token takes 33 experts, and a layer has 8"),
        ({"num_experts_per_tok": "2"}, "num_experts_per_tok is '2'; expected a whole number"),
        ({"moe_intermediate_size": 0}, "moe_intermediate_size is 0; expected 1 to"),
        ({"moe_intermediate_size": {}}, "moe_intermediate_size is {}; expected a whole number"),
        ({"num_local_experts": -8}, "num_local_experts is -8; expected 0 to"),
    ],
)
def test_experts_of_no_model(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    assert refused(tmp_path, {**EXPERTS, **change}).startswith(told)


@pytest.mark.parametrize(
    ("change", "gpus", "told"),
    [
        ({"num_attention_heads": 31, "num_key_value_heads": 31}, "H100x8", "TP 2, 4, 8 are impossible: 31 attention heads do not divide by any of these"),
        ({"num_attention_heads": 12, "num_key_value_heads": 4}, "H100x8", "TP 8 is impossible: 12 attention heads do not divide by TP 8"),
        ({"num_attention_heads": 30, "num_key_value_heads": 5}, "H100x6", "TP 2, 3, 6 are impossible: 5 KV heads and any of these do not divide one another"),
        ({"intermediate_size": 11010}, "H100x8", "TP 4, 8 are impossible: intermediate_size 11010 does not divide by any of these"),
    ],
)  # fmt: skip
def test_impossible_sizes_are_told_with_their_reason(
    tmp_path: Path, change: dict[str, Any], gpus: str, told: str
) -> None:
    found = warnings(tmp_path, {**DENSE, **WIDE, **change}, gpus)
    assert told in found
    assert sum("impossible" in line for line in found) == 1 + (change.get("num_attention_heads") == 30)


def test_all_sizes_of_an_ordinary_model_are_possible(tmp_path: Path) -> None:
    assert not any("impossible" in line or "head_dim" in line for line in warnings(tmp_path, DENSE))


def test_a_head_of_no_whole_size_is_told(tmp_path: Path) -> None:
    assert any(
        line.startswith(
            "hidden_size 4096 does not divide by 40 attention heads, and no head_dim is given: 102 is assumed"
        )
        for line in warnings(tmp_path, {**DENSE, "num_attention_heads": 40})
    )
    assert not any("head_dim" in line for line in warnings(tmp_path, {**DENSE, **WIDE, "num_attention_heads": 40}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"torch_dtype": "int3"}, "torch_dtype is 'int3', which is none of float64, "),
        ({"torch_dtype": 16}, "torch_dtype is 16, which is none of float64, "),
        ({"dtype": ["float16"], "torch_dtype": None}, "dtype is ['float16'], which is none of float64, "),
        ({"torch_dtype": None}, "the config names no dtype: bfloat16 is assumed"),
        ({"torch_dtype": "auto"}, "the config names no dtype: bfloat16 is assumed"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8', not an object: weights are counted unquantised"),
        ({"quantization_config": {"quant_method": "int3"}}, "quantization method int3 is unknown"),
        ({"quantization_config": {"quant_method": "gptq", "bits": "3"}}, "bits of the quantization is '3', and no format has that: counted as 4"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 1000}}, "bits of the quantization is 1000, "),
        ({"quantization_config": {"quant_method": "awq", "group_size": 0}}, "group_size of the quantization is 0, "),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}}, "weight_block_size of the quantization is [0, 128]; "),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": -4}}}}},
         "num_bits of the quantization is -4, and no format has that: counted as 8 bits"),
        ({"vision_config": "clip"}, "vision_config is 'clip', not an object: it is left out"),
    ],
)  # fmt: skip
def test_what_is_taken_in_place_is_told(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    assert sum(line.startswith(told) for line in warnings(tmp_path, {**DENSE, **change})) == 1


@pytest.mark.parametrize("quantization", [
    {"quant_method": "gptq", "bits": 4, "group_size": -1}, {"quant_method": "fp8", "weight_block_size": [128, 128]}, {}, None,
    {"quant_method": "awq", "bits": 4, "group_size": 128}, {"quant_method": "fp8", "weight_block_size": None},
])  # fmt: skip
def test_usual_quantizations_have_nothing_odd(tmp_path: Path, quantization: Any) -> None:
    assert not any(
        "quantization" in line
        for line in warnings(tmp_path, {**DENSE, "quantization_config": quantization})
        if "fp8 checkpoint" not in line
    )
