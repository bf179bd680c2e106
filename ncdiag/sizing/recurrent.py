"""Layers that keep a state of fixed size in place of a KV cache: Mamba, gated delta net, short convolution.

`STATES` gives the state one sequence holds in one layer, as (numbers kept in the cache's type, numbers kept in
float32 or the cache's type as the config's *_ssm_cache_dtype says). Source: `modeling_*.py`; vLLM
`model_executor/layers/mamba/mamba_utils.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ncdiag.sizing.config import ModelConfig
from ncdiag.sizing.weights import COPY, TP, Weight, linear, norm


@dataclass(frozen=True)
class State:
    """Numbers kept for one sequence in one layer."""

    conv: int  # the last few inputs of the convolution
    ssm: int  # the recurrent state


def _pick(config: ModelConfig, *keys: str, default: int | None = None) -> int:
    for key in keys:
        if config.raw(key) is not None:
            return config.number(key)
    return config.number(keys[0], default)


def _inner(config: ModelConfig) -> int:
    """Width inside a Mamba mixer."""
    if config.raw("mamba_d_ssm"):
        return config.number("mamba_d_ssm")
    if config.raw("mamba_num_heads"):
        return config.number("mamba_num_heads") * config.number("mamba_head_dim", 64)
    if config.model_type in ("mamba", "falcon_mamba") and config.raw("intermediate_size"):
        return config.number("intermediate_size")
    key = "mamba_expand" if config.raw("mamba_expand") is not None else "expand"
    return int(config.factor(key, 2) * config.number("hidden_size"))


def _flag(config: ModelConfig, keys: tuple[str, ...], default: bool) -> bool:
    return next((config.flag(key) for key in keys if config.raw(key) is not None), default)


def mamba1(config: ModelConfig, prefix: str) -> list[Weight]:
    hidden, inner = config.number("hidden_size"), _inner(config)
    state, kernel = (
        _pick(config, "mamba_d_state", "state_size", default=16),
        _pick(config, "mamba_d_conv", "conv_kernel", default=4),
    )
    rank = _rank(config, hidden)
    biased = _flag(config, ("mamba_proj_bias", "use_bias"), False)
    out = [
        *linear(f"{prefix}.in_proj", 2 * inner, hidden, bias=biased),
        Weight(f"{prefix}.conv1d", inner, kernel, split=TP),
        *linear(f"{prefix}.x_proj", rank + 2 * state, inner),
        *linear(f"{prefix}.dt_proj", inner, rank, bias=True),
        Weight(f"{prefix}.A_log", inner, state, split=TP),
        Weight(f"{prefix}.D", inner, split=TP),
        *linear(f"{prefix}.out_proj", hidden, inner, bias=biased),
    ]
    if _flag(config, ("mamba_conv_bias", "use_conv_bias"), True):
        out.append(Weight(f"{prefix}.conv1d.bias", inner, split=TP))
    if config.model_type == "jamba":
        out += [*norm(f"{prefix}.dt_layernorm", rank), *norm(f"{prefix}.b_layernorm", state)]
        out += norm(f"{prefix}.c_layernorm", state)
    return out


def _rank(config: ModelConfig, hidden: int) -> int:
    for key in ("mamba_dt_rank", "time_step_rank"):
        if isinstance(config.raw(key), int):
            return config.number(key)
    return -(-hidden // 16)


def mamba2(config: ModelConfig, prefix: str) -> list[Weight]:
    hidden, inner = config.number("hidden_size"), _inner(config)
    heads = _pick(config, "mamba_n_heads", "mamba_num_heads", "num_heads", default=128)
    conv = inner + 2 * _groups(config) * _ssm(config)
    kernel = _pick(config, "mamba_d_conv", "conv_kernel", default=4)
    biased = _flag(config, ("mamba_proj_bias", "use_bias"), False)
    out_biased = _flag(config, ("projectors_bias", "mamba_proj_bias", "use_bias"), False)
    if config.model_type == "nemotron_h":
        out_biased = config.flag("use_bias")
    out = [
        *linear(f"{prefix}.in_proj", inner + conv + heads, hidden, bias=biased),
        Weight(f"{prefix}.conv1d", conv, kernel, split=TP),
        Weight(f"{prefix}.dt_bias", heads, split=TP),
        Weight(f"{prefix}.A_log", heads, split=TP),
        Weight(f"{prefix}.D", heads, split=TP),
        *linear(f"{prefix}.out_proj", hidden, inner, bias=out_biased),
    ]
    if _flag(config, ("mamba_conv_bias", "use_conv_bias"), True):
        out.append(Weight(f"{prefix}.conv1d.bias", conv, split=TP))
    if config.model_type != "falcon_h1" or config.flag("mamba_rms_norm"):
        out.append(Weight(f"{prefix}.norm", inner, split=TP))
    return out


def _groups(config: ModelConfig) -> int:
    return _pick(config, "mamba_n_groups", "n_groups", default=1)


def _ssm(config: ModelConfig) -> int:
    return _pick(config, "mamba_d_state", "ssm_state_size", "state_size", default=128)


def delta(config: ModelConfig, prefix: str) -> list[Weight]:
    """Gated delta net of Qwen3-Next and Qwen3.5."""
    hidden = config.number("hidden_size")
    keys = config.number("linear_num_key_heads") * config.number("linear_key_head_dim")
    heads = config.number("linear_num_value_heads")
    values = heads * config.number("linear_value_head_dim")
    return [
        *linear(f"{prefix}.in_proj_qkvz", 2 * keys + 2 * values, hidden),
        *linear(f"{prefix}.in_proj_ba", 2 * heads, hidden),
        Weight(f"{prefix}.conv1d", 2 * keys + values, config.number("linear_conv_kernel_dim"), split=TP),
        Weight(f"{prefix}.dt_bias", heads, split=TP),
        Weight(f"{prefix}.A_log", heads, split=TP),
        Weight(f"{prefix}.norm", config.number("linear_value_head_dim"), split=COPY),
        *linear(f"{prefix}.out_proj", hidden, values),
    ]


def conv(config: ModelConfig, prefix: str) -> list[Weight]:
    """Short convolution of LFM2."""
    hidden, biased = config.number("hidden_size"), config.flag("conv_bias")
    out = [
        Weight(f"{prefix}.conv", hidden, config.number("conv_L_cache", 3), split=TP),
        *linear(f"{prefix}.in_proj", 3 * hidden, hidden, bias=biased),
        *linear(f"{prefix}.out_proj", hidden, hidden, bias=biased),
    ]
    return [*out, Weight(f"{prefix}.conv.bias", hidden, split=TP)] if biased else out


def lightning(config: ModelConfig, prefix: str) -> list[Weight]:
    """Linear attention of MiniMax-Text-01."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    inner = heads * (config.number("head_dim", 0) or hidden // max(heads, 1))
    return [
        *norm(f"{prefix}.norm", inner),
        *linear(f"{prefix}.qkv_proj", 3 * inner, hidden),
        *linear(f"{prefix}.out_proj", hidden, inner),
        *linear(f"{prefix}.output_gate", inner, hidden),
    ]


def _mamba1_state(config: ModelConfig) -> State:
    inner, kernel = _inner(config), _pick(config, "mamba_d_conv", "conv_kernel", default=4)
    return State(inner * (kernel - 1), inner * _pick(config, "mamba_d_state", "state_size", default=16))


def _mamba2_state(config: ModelConfig) -> State:
    inner, kernel = _inner(config), _pick(config, "mamba_d_conv", "conv_kernel", default=4)
    return State((inner + 2 * _groups(config) * _ssm(config)) * (kernel - 1), inner * _ssm(config))


def _delta_state(config: ModelConfig) -> State:
    key, value = config.number("linear_key_head_dim"), config.number("linear_value_head_dim")
    heads = config.number("linear_num_value_heads")
    wide = 2 * config.number("linear_num_key_heads") * key + heads * value
    return State(wide * (config.number("linear_conv_kernel_dim") - 1), heads * key * value)


def _conv_state(config: ModelConfig) -> State:
    return State(config.number("hidden_size") * (config.number("conv_L_cache", 3) - 1), 0)


def _lightning_state(config: ModelConfig) -> State:
    heads = config.number("num_attention_heads")
    size = config.number("head_dim", 0) or config.number("hidden_size") // max(heads, 1)
    return State(0, heads * size * size)


MIXERS: Mapping[str, Callable[[ModelConfig, str], list[Weight]]] = {
    "mamba1": mamba1,
    "mamba2": mamba2,
    "delta": delta,
    "conv": conv,
    "lightning": lightning,
}
STATES: Mapping[str, Callable[[ModelConfig], State]] = {
    "mamba1": _mamba1_state,
    "mamba2": _mamba2_state,
    "delta": _delta_state,
    "conv": _conv_state,
    "lightning": _lightning_state,
}
