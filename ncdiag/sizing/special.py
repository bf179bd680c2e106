"""Weights that only one family has, beside the ordinary layer. Source: the family's `modeling_*.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ncdiag.sizing.attention import Heads
from ncdiag.sizing.config import ModelConfig
from ncdiag.sizing.families import Family
from ncdiag.sizing.feedforward import expert_count, expert_weights, mlp_weights
from ncdiag.sizing.layers import SLIDING
from ncdiag.sizing.weights import KV, Weight, linear, norm


@dataclass(frozen=True)
class Extra:
    """Additions to the embeddings and to one layer."""

    first: Callable[[ModelConfig, int], list[Weight]]
    layer: Callable[[ModelConfig, list[Weight], str], list[Weight]]  # (config, ordinary weights, prefix)


def _nothing(config: ModelConfig, total: int) -> list[Weight]:
    return []


def _per_layer_inputs(config: ModelConfig, total: int) -> list[Weight]:
    """Gemma 3n and 4: a second embedding table that feeds every layer."""
    size, hidden = config.number("hidden_size_per_layer_input", 256), config.number("hidden_size")
    if not size:
        return []
    return [
        Weight("model.embed_tokens_per_layer", config.number("vocab_size_per_layer_input", 262144), total * size),
        *linear("model.per_layer_model_projection", total * size, hidden),
        *norm("model.per_layer_projection_norm", size),
    ]


def _per_layer_gate(config: ModelConfig, prefix: str) -> list[Weight]:
    size, hidden = config.number("hidden_size_per_layer_input", 256), config.number("hidden_size")
    if not size:
        return []
    return [
        *linear(f"{prefix}.per_layer_input_gate", size, hidden),
        *linear(f"{prefix}.per_layer_projection", hidden, size),
        *norm(f"{prefix}.post_per_layer_input_norm", hidden),
    ]


def _gemma3n_first(config: ModelConfig, total: int) -> list[Weight]:
    hidden, inputs = config.number("hidden_size"), config.number("altup_num_inputs", 4)
    out = _per_layer_inputs(config, total)
    for name in ("altup_projections", "altup_unembed_projections"):
        out += [Weight(f"model.{name}.{index}", hidden, hidden, linear=True) for index in range(inputs - 1)]
    return out


def _gemma3n_layer(config: ModelConfig, weights: list[Weight], prefix: str) -> list[Weight]:
    hidden, inputs = config.number("hidden_size"), config.number("altup_num_inputs", 4)
    rank = config.number("laurel_rank", 64)
    return [
        *weights,
        Weight(f"{prefix}.altup.correct_output_scale", hidden),
        Weight(f"{prefix}.altup.correction_coefs", inputs, inputs),
        Weight(f"{prefix}.altup.prediction_coefs", inputs * inputs, inputs),
        Weight(f"{prefix}.altup.modality_router", inputs, hidden),
        *norm(f"{prefix}.altup.router_norm", hidden),
        *linear(f"{prefix}.laurel.linear_left", rank, hidden),
        *linear(f"{prefix}.laurel.linear_right", hidden, rank),
        *norm(f"{prefix}.laurel.post_laurel_norm", hidden),
        *_per_layer_gate(config, prefix),
    ]


def _gemma4_layer(config: ModelConfig, weights: list[Weight], prefix: str) -> list[Weight]:
    hidden, experts = config.number("hidden_size"), expert_count(config)
    out = [*weights, *_per_layer_gate(config, prefix), Weight(f"{prefix}.layer_scalar", 1)]
    if config.flag("enable_moe_block") and experts:
        routed = expert_weights(config, Family(), f"{prefix}.moe", experts)
        out += [*routed, Weight(f"{prefix}.router.scale", hidden), Weight(f"{prefix}.router.per_expert_scale", experts)]
        out += [Weight(f"{prefix}.moe_norm.{index}", hidden) for index in range(3)]
    return out


def _opt_first(config: ModelConfig, total: int) -> list[Weight]:
    hidden, narrow = config.number("hidden_size"), config.number("word_embed_proj_dim", 0)
    if not narrow or narrow == hidden:
        return []
    return [*linear("model.decoder.project_in", hidden, narrow), *linear("model.decoder.project_out", narrow, hidden)]


def _apertus_layer(config: ModelConfig, weights: list[Weight], prefix: str) -> list[Weight]:
    names = ("alpha_p", "alpha_n", "beta", "eps")  # parameters and saved constants of xIELU
    return [*weights, *[Weight(f"{prefix}.mlp.act_fn.{name}", 1) for name in names]]


EXTRA: Mapping[str, Extra] = {
    "gemma3n": Extra(_gemma3n_first, _gemma3n_layer),
    "gemma4": Extra(_per_layer_inputs, _gemma4_layer),
    "opt": Extra(_opt_first, lambda config, weights, prefix: weights),
    "apertus": Extra(_nothing, _apertus_layer),
}


def gemma4_heads(config: ModelConfig, heads: Heads, kind: str) -> Heads:
    """Gemma 4: layers that see everything have heads of their own size and number."""
    if kind == SLIDING:
        return heads
    size = config.number("global_head_dim", 512)
    kv = config.number("num_global_key_value_heads", 0) if config.flag("attention_k_eq_v") else 0
    return replace(heads, size=size, value=size, kv=kv or heads.kv)


def shares_kv(config: ModelConfig, index: int, total: int) -> bool:
    """Gemma 3n and 4: the last layers read the cache of an earlier one."""
    shared = config.number("num_kv_shared_layers", 15 if config.model_type.startswith("gemma3n") else 0)
    return shared > 0 and index >= total - shared


def gemma4_adjust(config: ModelConfig, weights: list[Weight], kind: str, shared: bool) -> list[Weight]:
    """Gemma 4: no K and V where the cache is shared; V is K where attention_k_eq_v says so."""
    if shared:
        weights = [weight for weight in weights if weight.split != KV and not weight.name.endswith("k_norm")]
    elif config.flag("attention_k_eq_v") and kind != SLIDING:
        weights = [weight for weight in weights if not weight.name.endswith("v_proj")]
    return weights


def gemma4_mlp(config: ModelConfig, prefix: str, shared: bool) -> list[Weight]:
    wide = 2 if config.flag("use_double_wide_mlp") and shared else 1
    width = config.number("intermediate_size") * wide
    return mlp_weights(prefix, config.number("hidden_size"), width, True, False)
