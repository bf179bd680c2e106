"""Weights of one feed-forward layer: dense (gated or not) or a mixture of experts with its router."""

from __future__ import annotations

from ncdiag.sizing.config import ModelConfig
from ncdiag.sizing.families import Family, on
from ncdiag.sizing.weights import Weight, as_experts, linear

EXPERT_COUNTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "moe_num_primary_experts")


def expert_count(config: ModelConfig) -> int:
    """Routed experts of a layer; 0 for a dense model."""
    for key in EXPERT_COUNTS:
        if config.raw(key) is not None and not isinstance(config.raw(key), list):
            count = config.number(key)
            if count > 1:
                return count
    return 0


def experts_per_token(config: ModelConfig) -> int:
    for key in ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts"):
        value = config.raw(key)
        if value is not None and not isinstance(value, list):
            return max(config.number(key), 1)
    return 1


def expert_width(config: ModelConfig) -> int:
    for key in ("moe_intermediate_size", "expert_ffn_hidden_size", "expert_intermediate_size"):
        value = config.raw(key)
        value = value[0] if isinstance(value, list) and value else value
        if value is not None:
            return config.whole(key, value)
    return config.number("intermediate_size")


def shared_width(config: ModelConfig) -> int:
    """Width of what every token passes through beside its experts; 0 for none."""
    for key in ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size"):
        if config.number(key, 0):
            return config.number(key)
    value = config.raw("n_shared_experts")
    value = config.raw("num_shared_expert") if value is None else value
    value = value[0] if isinstance(value, list) and value else value
    count = config.whole("n_shared_experts", value) if value is not None else 0
    return count * expert_width(config)


def mlp_weights(prefix: str, hidden: int, width: int, gated: bool, bias: bool) -> list[Weight]:
    out = linear(f"{prefix}.gate_proj", width, hidden, bias=bias) if gated else []
    out += linear(f"{prefix}.up_proj", width, hidden, bias=bias)
    return out + linear(f"{prefix}.down_proj", hidden, width, bias=bias)


def dense_weights(config: ModelConfig, family: Family, prefix: str, index: int = 0) -> list[Weight]:
    value = config.raw("intermediate_size")
    if family.special == "llama4":
        value = config.raw("intermediate_size_mlp") or value
    if isinstance(value, list) and value:  # Gemma 3n: one width a layer
        value = value[min(index, len(value) - 1)]
    width = config.number("intermediate_size") if value is None else config.whole("intermediate_size", value)
    return mlp_weights(prefix, config.number("hidden_size"), width, family.gated, on(config, family.mlp_bias))


def expert_weights(config: ModelConfig, family: Family, prefix: str, experts: int) -> list[Weight]:
    """Router, routed experts, shared experts."""
    hidden, latent = config.number("hidden_size"), config.number("moe_latent_size", 0)
    biased = family.expert_bias or on(config, family.mlp_bias)
    one = mlp_weights(f"{prefix}.experts.0", latent or hidden, expert_width(config), family.gated, biased)
    out = [Weight(f"{prefix}.gate", experts, hidden)]
    if family.router_bias:
        out.append(Weight(f"{prefix}.gate.bias", experts))
    if family.score_bias and config.raw("topk_method") in (None, "noaux_tc"):
        out.append(Weight(f"{prefix}.gate.e_score_correction_bias", experts, dtype="float32"))
    if latent:
        out += linear(f"{prefix}.fc1_latent_proj", latent, hidden) + linear(f"{prefix}.fc2_latent_proj", hidden, latent)
    out += as_experts(one, experts)
    width = _llama4_shared(config, family) or shared_width(config)
    if width:
        out += mlp_weights(f"{prefix}.shared_experts", hidden, width, family.gated, on(config, family.mlp_bias))
        if family.shared_gate:
            out.append(Weight(f"{prefix}.shared_expert_gate", 1, hidden))
    return out


def _llama4_shared(config: ModelConfig, family: Family) -> int:
    if family.special == "hunyuan":
        return config.number("intermediate_size") * max(_first(config, "num_shared_expert", 1), 1)
    return config.number("intermediate_size") if family.special == "llama4" else 0


def _first(config: ModelConfig, key: str, default: int) -> int:
    value = config.raw(key)
    value = value[0] if isinstance(value, list) and value else value
    return default if value is None else config.whole(key, value)
