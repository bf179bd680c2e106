"""Configs with key names of their own, turned into the usual ones.

Each function gets the language model's part and returns the keys to add or replace. Source: the
`configuration_*.py` of the model type (transformers) or of the model's repository (chatglm, qwen).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Flat = dict[str, Any]


def adapted(model_type: str, text: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config's language part with the usual keys filled in for the few types that use others."""
    function = ADAPTERS.get(model_type)
    return {**text, **function(text)} if function else text


def _whole(value: Any, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _mpt(text: Mapping[str, Any]) -> Flat:
    attention, hidden, heads = (
        _object(text.get("attn_config")),
        _whole(text.get("d_model")),
        _whole(text.get("n_heads")),
    )
    one = attention.get("attn_type") == "multiquery_attention"
    biased = not text.get("no_bias", True)
    return {
        "num_key_value_heads": _whole(attention.get("kv_n_heads"), 1 if one else heads),
        "intermediate_size": hidden * _whole(text.get("expansion_ratio"), 4),
        "learned_positions": not attention.get("alibi", True),
        "use_bias": biased,
    }


def _dbrx(text: Mapping[str, Any]) -> Flat:
    attention, experts = _object(text.get("attn_config")), _object(text.get("ffn_config"))
    return {
        "num_key_value_heads": _whole(attention.get("kv_n_heads"), 1),
        "intermediate_size": _whole(experts.get("ffn_hidden_size"), 3584),
        "num_local_experts": _whole(experts.get("moe_num_experts"), 4),
        "num_experts_per_tok": _whole(experts.get("moe_top_k"), 1),
    }


def _chatglm(text: Mapping[str, Any]) -> Flat:
    heads = _whole(text.get("num_attention_heads"))
    return {
        "num_key_value_heads": _whole(text.get("multi_query_group_num"))
        if text.get("multi_query_attention")
        else heads,
        "head_dim": text.get("kv_channels"),
        "tie_word_embeddings": bool(text.get("tie_word_embeddings", False)),
    }


def _qwen(text: Mapping[str, Any]) -> Flat:
    return {"intermediate_size": _whole(text.get("intermediate_size")) // 2, "head_dim": text.get("kv_channels")}


def _four_times(text: Mapping[str, Any]) -> Flat:
    hidden = _whole(text.get("n_embd")) or _whole(text.get("hidden_size"))
    found = text.get("n_inner") or text.get("ffn_hidden_size") or text.get("intermediate_size")
    return {"intermediate_size": found or 4 * hidden} if hidden else {}


def _lfm2(text: Mapping[str, Any]) -> Flat:
    """Lfm2MLP shrinks the config's width to two thirds and rounds it up to a multiple."""
    width = _whole(text.get("intermediate_size") or text.get("block_ff_dim"), 12288)
    if text.get("block_auto_adjust_ff_dim", True):
        width = int(2 * width / 3)
        factor, step = text.get("block_ffn_dim_multiplier", 1.0), _whole(text.get("block_multiple_of"), 256) or 1
        if isinstance(factor, (int, float)) and 0 < factor < 10000:
            width = step * ((int(factor * width) + step - 1) // step)
    return {"intermediate_size": width}


def _ernie_moe(text: Mapping[str, Any]) -> Flat:
    return {
        "num_local_experts": _whole(text.get("moe_num_experts"), 64),
        "n_shared_experts": _whole(text.get("moe_num_shared_experts"), 2),
        "num_experts_per_tok": _whole(text.get("moe_k"), 6),
    }


def _hunyuan_moe(text: Mapping[str, Any]) -> Flat:
    top = text.get("moe_topk")
    return {"num_experts_per_tok": top[0] if isinstance(top, list) and top else _whole(top, 1)}


ADAPTERS: Mapping[str, Callable[[Mapping[str, Any]], Flat]] = {
    "mpt": _mpt,
    "dbrx": _dbrx,
    "chatglm": _chatglm,
    "qwen": _qwen,
    "gpt2": _four_times,
    "gptj": _four_times,
    "gpt_bigcode": _four_times,
    "bloom": _four_times,
    "falcon": _four_times,
    "lfm2": _lfm2,
    "ernie4_5_moe": _ernie_moe,
    "hunyuan_v1_moe": _hunyuan_moe,
}
