"""Bytes of quantised weights: against what the libraries write, and against a published index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag.sizing.config import parse_config
from ncdiag.sizing.decoder import build, open_decoder
from ncdiag.sizing.formats import quantisation_of
from ncdiag.sizing.quantise import Quantisation, stored_bytes
from ncdiag.sizing.weights import Weight
from tests.sizing.public_models import CONFIGS

MATRIX = Weight("model.layers.0.self_attn.q_proj", 384, 256, linear=True)


def read(part: dict[str, Any]) -> Quantisation:
    return quantisation_of(parse_config({"quantization_config": part}, Path("config.json")), 2)


def compressed(layout: str, weights: dict[str, Any], activations: dict[str, Any] | None = None) -> dict[str, Any]:
    group: dict[str, Any] = {"targets": ["Linear"], "weights": weights}
    if activations:
        group["input_activations"] = activations
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }


@pytest.mark.parametrize(
    ("layout", "weights", "activations", "written"),
    [  # what compressed-tensors 0.17's ModelCompressor wrote for a bfloat16 matrix of 384 x 256
        ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "channel"}, {"dynamic": True}, 99072),
        ("float-quantized", {"num_bits": 8, "type": "float", "strategy": "tensor"}, {"dynamic": False}, 98308),
        (
            "float-quantized",
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
            None,
            98316,
        ),
        ("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, {"dynamic": True}, 99072),
        (
            "pack-quantized",
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
            None,
            50704,
        ),
        (
            "pack-quantized",
            {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": False},
            None,
            51088,
        ),
        (
            "nvfp4-pack-quantized",
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            None,
            55300,
        ),
        ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, None, 52224),
    ],
)
def test_compressed_tensors(
    layout: str, weights: dict[str, Any], activations: dict[str, Any] | None, written: int
) -> None:
    assert stored_bytes(MATRIX, read(compressed(layout, weights, activations)), 2) == written


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        # qweight 256/8 x 384 int32, qzeros 2 x 384/8 int32, scales 2 x 384 float16, g_idx 256 int32
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 49152 + 384 + 1536 + 1024),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 98304 + 384 + 768 + 1024),
        # qweight 256 x 384/8 int32, qzeros 2 x 384/8 int32, scales 2 x 384 float16
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 49152 + 384 + 1536),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 98304 + 3 * 2 * 4),
        ({"quant_method": "fp8"}, 98304 + 4),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 98304 + 384 * 4 + 1),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 49152 + 1536 * 4 + 64),
        ({"quant_algo": "NVFP4"}, 49152 + 384 * 16 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, 98304 + 8),
        ({"quant_method": "fbgemm_fp8"}, 98304 + 384 * 4),
        ({"quant_method": "heard-of-nowhere"}, 2 * 98304),
    ],
)
def test_formats(part: dict[str, Any], expected: int) -> None:
    assert stored_bytes(MATRIX, read(part), 2) == expected


def test_published_awq_index() -> None:
    """Llama-3.1-70B-Instruct, AWQ 4-bit, groups of 128."""
    config = {**CONFIGS["Llama-3.1-70B"], "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    decoder = open_decoder(parse_config(config, Path("config.json")))
    quantisation = quantisation_of(decoder.config, 2)
    assert sum(stored_bytes(weight, quantisation, 2) for weight in build(decoder).all()) == 39767785472


@pytest.mark.parametrize(
    ("ignore", "name", "covered"),
    [
        (["lm_head"], "lm_head", False),
        ([], "lm_head", False),
        (["re:.*self_attn.*"], "model.layers.3.self_attn.q_proj", False),
        (["re:.*mlp.*"], "model.layers.3.self_attn.q_proj", True),
        (["model.layers.3.self_attn"], "model.layers.3.self_attn.q_proj", False),
        (["model.layers.3.self_attn"], "model.layers.31.self_attn.q_proj", True),
        (["q_proj"], "model.layers.3.self_attn.q_proj", False),
        (["model.layers.*.self_attn"], "model.layers.3.self_attn.q_proj", False),
        (["re:(a+)+$"], "a" * 60, True),
        (["re:("], "model.layers.3.mlp.up_proj", True),
    ],
)
def test_layers_left_as_they_are(ignore: list[str], name: str, covered: bool) -> None:
    quantisation = read({"quant_method": "fp8", "ignore": ignore})
    assert quantisation.covers(Weight(name, 256, 256, linear=True)) is covered


def test_an_unknown_method_is_said() -> None:
    assert "heard-of-nowhere" in read({"quant_method": "heard-of-nowhere"}).notes[0]
    assert read({"quant_method": "new4", "bits": 4}).bits == 4


def test_fp8_cache_scales_are_seen() -> None:
    part = {
        **compressed("float-quantized", {"num_bits": 8, "type": "float"}),
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }
    assert read(part).kv_cache_fp8
    assert read({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}).kv_cache_fp8
