"""Vision towers: their weights, one function a kind. Class defaults are those of transformers.

Source: `modeling_*.py` of clip, siglip, pixtral, llama4, qwen2_vl, qwen2_5_vl, qwen3_vl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ncdiag.sizing.config import ModelConfig
from ncdiag.sizing.weights import Weight, linear, norm

VISION_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "clip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 32,
    },
    "siglip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 16,
    },
    "pixtral": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_channels": 3,
        "patch_size": 16,
    },
    "qwen2_vl": {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 3584,
        "mlp_ratio": 4,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    "qwen2_5_vl": {
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 3584,
    },
    "qwen3_vl": {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 3584,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
    "llama4_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "num_channels": 3,
        "image_size": 448,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 7680,
    },
}


def _block(prefix: str, hidden: int, width: int, count: int) -> list[Weight]:
    """A transformer layer with biases everywhere and two layer norms."""
    out: list[Weight] = []
    for index in range(count):
        at = f"{prefix}.{index}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            out += linear(f"{at}.{name}", hidden, hidden, bias=True)
        out += linear(f"{at}.fc1", width, hidden, bias=True) + linear(f"{at}.fc2", hidden, width, bias=True)
        out += norm(f"{at}.norm1", hidden, True) + norm(f"{at}.norm2", hidden, True)
    return out


def _patches(tower: ModelConfig) -> int:
    patch = max(tower.number("patch_size"), 1)
    return (tower.number("image_size") // patch) ** 2


def _patch_embedding(tower: ModelConfig, hidden: int) -> int:
    return tower.number("num_channels", 3) * tower.number("patch_size") ** 2


def _clip(tower: ModelConfig) -> list[Weight]:
    hidden = tower.number("hidden_size")
    return [
        Weight("vision_tower.class_embedding", hidden),
        Weight("vision_tower.patch_embedding", hidden, _patch_embedding(tower, hidden)),
        Weight("vision_tower.position_embedding", _patches(tower) + 1, hidden),
        *norm("vision_tower.pre_layrnorm", hidden, True),
        *_block("vision_tower.layers", hidden, tower.number("intermediate_size"), tower.number("num_hidden_layers")),
        *norm("vision_tower.post_layernorm", hidden, True),
    ]


def _siglip(tower: ModelConfig) -> list[Weight]:
    hidden, width = tower.number("hidden_size"), tower.number("intermediate_size")
    out = [
        Weight("vision_tower.patch_embedding", hidden, _patch_embedding(tower, hidden)),
        Weight("vision_tower.patch_embedding.bias", hidden),
        Weight("vision_tower.position_embedding", _patches(tower), hidden),
        *_block("vision_tower.layers", hidden, width, tower.number("num_hidden_layers")),
        *norm("vision_tower.post_layernorm", hidden, True),
    ]
    if tower.flag("vision_use_head", tower.outer.get("model_type") != "paligemma"):
        out += [Weight("vision_tower.head.probe", hidden), Weight("vision_tower.head.in_proj", 3 * hidden, hidden)]
        out += [Weight("vision_tower.head.in_proj_bias", 3 * hidden)]
        out += linear("vision_tower.head.out_proj", hidden, hidden, bias=True) + norm("head.layernorm", hidden, True)
        out += linear("vision_tower.head.fc1", width, hidden, bias=True)
        out += linear("vision_tower.head.fc2", hidden, width, bias=True)
    return out


def _pixtral(tower: ModelConfig) -> list[Weight]:
    hidden, width = tower.number("hidden_size"), tower.number("intermediate_size")
    out = [Weight("vision_tower.patch_conv", hidden, _patch_embedding(tower, hidden))]
    out += norm("vision_tower.ln_pre", hidden)
    for index in range(tower.number("num_hidden_layers")):
        at = f"vision_tower.layers.{index}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            out += linear(f"{at}.{name}", hidden, hidden)
        out += linear(f"{at}.gate_proj", width, hidden) + linear(f"{at}.up_proj", width, hidden)
        out += linear(f"{at}.down_proj", hidden, width)
        out += norm(f"{at}.attention_norm", hidden) + norm(f"{at}.ffn_norm", hidden)
    return out


def _qwen_patch(tower: ModelConfig, hidden: int, bias: bool) -> list[Weight]:
    channels = tower.number("in_channels", 0) or tower.number("in_chans", 3)
    cols = channels * tower.number("temporal_patch_size") * tower.number("patch_size") ** 2
    out = [Weight("visual.patch_embed.proj", hidden, cols)]
    return [*out, Weight("visual.patch_embed.proj.bias", hidden)] if bias else out


def _qwen2_vl(tower: ModelConfig) -> list[Weight]:
    hidden = tower.number("embed_dim")
    out = _qwen_patch(tower, hidden, False)
    width = int(hidden * tower.factor("mlp_ratio", 4))
    out += _block("visual.blocks", hidden, width, tower.number("depth"))
    wide = hidden * tower.number("spatial_merge_size") ** 2
    out += norm("visual.merger.ln_q", hidden, True) + linear("visual.merger.mlp.0", wide, wide, bias=True)
    return out + linear("visual.merger.mlp.2", tower.number("hidden_size"), wide, bias=True)


def _qwen2_5_vl(tower: ModelConfig) -> list[Weight]:
    hidden, width = tower.number("hidden_size"), tower.number("intermediate_size")
    out = _qwen_patch(tower, hidden, False)
    for index in range(tower.number("depth")):
        at = f"visual.blocks.{index}"
        out += linear(f"{at}.attn.qkv", 3 * hidden, hidden, bias=True) + linear(
            f"{at}.attn.proj", hidden, hidden, bias=True
        )
        for name, rows, cols in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
            out += linear(f"{at}.mlp.{name}_proj", rows, cols, bias=True)
        out += norm(f"{at}.norm1", hidden) + norm(f"{at}.norm2", hidden)
    wide = hidden * tower.number("spatial_merge_size") ** 2
    out += norm("visual.merger.ln_q", hidden) + linear("visual.merger.mlp.0", wide, wide, bias=True)
    return out + linear("visual.merger.mlp.2", tower.number("out_hidden_size"), wide, bias=True)


def _qwen3_vl(tower: ModelConfig) -> list[Weight]:
    hidden, target = tower.number("hidden_size"), tower.number("out_hidden_size")
    out = _qwen_patch(tower, hidden, True)
    out.append(Weight("visual.pos_embed", tower.number("num_position_embeddings"), hidden))
    out += _block("visual.blocks", hidden, tower.number("intermediate_size"), tower.number("depth"))
    wide = hidden * tower.number("spatial_merge_size") ** 2
    mergers = [("visual.merger", hidden)]
    mergers += [(f"visual.deepstack.{index}", wide) for index, _ in enumerate(tower.items("deepstack_visual_indexes"))]
    for name, normed in mergers:
        out += norm(f"{name}.norm", normed, True) + linear(f"{name}.linear_fc1", wide, wide, bias=True)
        out += linear(f"{name}.linear_fc2", target, wide, bias=True)
    return out


def _llama4(tower: ModelConfig) -> list[Weight]:
    hidden, wide = tower.number("hidden_size"), tower.number("intermediate_size")
    return [
        Weight("vision_model.class_embedding", hidden),
        Weight("vision_model.patch_embedding", hidden, _patch_embedding(tower, hidden)),
        Weight("vision_model.positional_embedding_vlm", _patches(tower) + 1, hidden),
        *norm("vision_model.layernorm_pre", hidden, True),
        *norm("vision_model.layernorm_post", hidden, True),
        *_block("vision_model.layers", hidden, wide, tower.number("num_hidden_layers")),
        *linear("vision_model.vision_adapter.fc1", tower.number("projector_input_dim"), wide),
        *linear(
            "vision_model.vision_adapter.fc2",
            tower.number("projector_output_dim"),
            tower.number("projector_output_dim"),
        ),
    ]


TOWERS: Mapping[str, Callable[[ModelConfig], list[Weight]]] = {
    "clip_vision_model": _clip,
    "siglip_vision_model": _siglip,
    "pixtral": _pixtral,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "llama4_vision_model": _llama4,
}
