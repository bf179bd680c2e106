"""Encoders of multimodal models: which tower, its defaults, and the projector into the language model.

Only what is described here is counted; another tower is named in the notes. Source: `modeling_*.py` of llava,
mistral3, gemma3, paligemma, llama4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncdiag.sizing.config import ModelConfig, shown
from ncdiag.sizing.towers import TOWERS, VISION_DEFAULTS
from ncdiag.sizing.weights import TP, Weight, linear, norm

ENCODERS = ("vision_config", "vision_tower_config", "visual", "audio_config", "audio_encoder_config", "speech_config")


def encoder_weights(config: ModelConfig, text_hidden: int) -> tuple[list[Weight], list[str]]:
    """(weights of the towers that could be counted, one note for each that could not)."""
    weights: list[Weight] = []
    notes: list[str] = []
    for key in ENCODERS:
        part = config.outer.get(key)
        if part is not None and not isinstance(part, dict):
            notes.append(f"{key} is {shown(part)}, not an object: it is left out")
        if not isinstance(part, dict) or not part:
            continue
        kind = _kind(config, part)
        build = TOWERS.get(kind)
        if build is None or "audio" in key or "speech" in key:
            notes.append(f"{key} ({kind or 'no model_type'}) is not counted: ncdiag does not know how it is built")
            continue
        tower = config.sub(part, VISION_DEFAULTS.get(kind, {}))
        weights += build(tower) + _projector(config, tower, text_hidden)
    return weights, notes


def _kind(config: ModelConfig, part: Mapping[str, Any]) -> str:
    kind = part.get("model_type")
    kind = kind if isinstance(kind, str) else ""
    if config.outer_type in ("qwen2_vl", "qwen2_5_vl"):
        return config.outer_type
    if config.outer_type.startswith(("qwen3_vl", "qwen3_5")):
        return "qwen3_vl"
    return kind


def _projector(config: ModelConfig, tower: ModelConfig, text: int) -> list[Weight]:
    kind, hidden = config.outer_type, tower.number("hidden_size", 0)
    if kind in ("gemma3", "shieldgemma2"):
        return [
            Weight("multi_modal_projector.mm_input_projection_weight", text, hidden),
            Weight("mm_soft_emb_norm", hidden),
        ]
    if kind == "paligemma":
        return linear("multi_modal_projector.linear", text, hidden, bias=True)
    if kind == "llama4":
        return [Weight("multi_modal_projector.linear_1", text, tower.number("vision_output_dim"), split=TP)]
    if kind not in ("llava", "mistral3"):
        return []
    biased = bool(config.outer.get("multimodal_projector_bias", kind == "llava"))
    layers = config.outer.get("vision_feature_layer")
    wide = hidden * (len(layers) if isinstance(layers, list) else 1)
    out = linear("multi_modal_projector.linear_1", text, wide, bias=biased)
    out += linear("multi_modal_projector.linear_2", text, text, bias=biased)
    if kind == "mistral3":
        step = config.outer.get("spatial_merge_size", 2)
        merged = hidden * (step if isinstance(step, int) else 2) ** 2
        out += norm("multi_modal_projector.norm", hidden) + linear("patch_merger.merging_layer", hidden, merged)
    return out
