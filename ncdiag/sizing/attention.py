"""Weights and cache of one attention layer: grouped-query, multi-query or latent (MLA)."""

from __future__ import annotations

from dataclasses import dataclass

from ncdiag.sizing.config import ConfigError, ModelConfig
from ncdiag.sizing.families import Family, on
from ncdiag.sizing.weights import COPY, KV, TP, Weight, linear, norm


@dataclass(frozen=True)
class Heads:
    """Query heads, KV heads and their sizes."""

    query: int
    kv: int
    size: int  # head_dim
    value: int  # head_dim of V
    latent: int = 0  # kv_lora_rank of MLA; 0: no MLA
    rope: int = 0  # qk_rope_head_dim of MLA

    @property
    def cached(self) -> int:
        """Numbers kept for one token in one layer."""
        return self.latent + self.rope if self.latent else self.kv * (self.size + self.value)


def heads_of(config: ModelConfig, family: Family) -> Heads:
    query = config.number("num_attention_heads")
    if config.number("kv_lora_rank", 0):
        nope, rope = config.number("qk_nope_head_dim", 128), config.number("qk_rope_head_dim", 64)
        size, value = nope + rope, config.number("v_head_dim", 0) or config.number("hidden_size") // query
        return Heads(query, query, size, value, config.number("kv_lora_rank"), rope)
    size = config.number("head_dim", 0) or config.number("attention_head_dim", 0)
    size = size or config.number("hidden_size") // query
    kv = _kv_heads(config, family, query)
    if query % kv:
        raise ConfigError(
            f"{config.path}: {query} attention heads cannot share {kv} KV heads evenly: num_attention_heads must be a multiple of"
            " num_key_value_heads, and no engine runs it otherwise"
        )
    return Heads(query, kv, size, config.number("v_head_dim", 0) or size)


def _kv_heads(config: ModelConfig, family: Family, query: int) -> int:
    if family.heads_of == "falcon":
        if config.flag("new_decoder_architecture"):
            return config.number("num_kv_heads", query) or config.number("n_head_kv", query)
        return 1 if config.flag("multi_query", True) else query
    if family.heads_of == "multi_query":
        return 1 if config.flag("multi_query", True) else query
    for key in ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"):
        if config.raw(key) is not None:
            return config.number(key)
    return query


def attention_weights(config: ModelConfig, family: Family, heads: Heads, prefix: str) -> list[Weight]:
    """Projections, their biases, query and key norms."""
    if heads.latent:
        return _latent(config, family, heads, prefix)
    hidden, query = config.number("hidden_size"), heads.query * heads.size
    biased = on(config, family.qkv_bias)
    out = [
        *linear(f"{prefix}.q_proj", query * (2 if family.q_gate else 1), hidden, bias=biased),
        *linear(f"{prefix}.k_proj", heads.kv * heads.size, hidden, split=KV, bias=biased),
        *linear(f"{prefix}.v_proj", heads.kv * heads.value, hidden, split=KV, bias=biased),
        *linear(f"{prefix}.o_proj", hidden, heads.query * heads.value, bias=on(config, family.o_bias)),
    ]
    if family.sinks:
        out.append(Weight(f"{prefix}.sinks", heads.query, split=TP))
    return out + _query_key_norms(config, family, heads, prefix)


def _query_key_norms(config: ModelConfig, family: Family, heads: Heads, prefix: str) -> list[Weight]:
    if not family.qk_norm or (family.qk_norm_if and not config.flag(family.qk_norm_if)):
        return []
    if family.qk_norm == "head":
        sizes = (heads.size, heads.size)
    else:
        sizes = (heads.query * heads.size, heads.kv * heads.size)
    biased = family.qk_norm_bias
    return [*norm(f"{prefix}.q_norm", sizes[0], biased), *norm(f"{prefix}.k_norm", sizes[1], biased)]


def _latent(config: ModelConfig, family: Family, heads: Heads, prefix: str) -> list[Weight]:
    """MLA: low-rank query and KV; the down projections and their norms are whole on every GPU."""
    hidden, rank = config.number("hidden_size"), config.number("q_lora_rank", 0)
    biased = on(config, family.qkv_bias)
    nope = heads.size - heads.rope
    out: list[Weight] = []
    if rank:
        out += linear(f"{prefix}.q_a_proj", rank, hidden, split=COPY, bias=biased)
        out += norm(f"{prefix}.q_a_layernorm", rank)
        out += linear(f"{prefix}.q_b_proj", heads.query * heads.size, rank)
    else:
        out += linear(f"{prefix}.q_proj", heads.query * heads.size, hidden)
    out += linear(f"{prefix}.kv_a_proj_with_mqa", heads.latent + heads.rope, hidden, split=COPY, bias=biased)
    out += norm(f"{prefix}.kv_a_layernorm", heads.latent)
    out += linear(f"{prefix}.kv_b_proj", heads.query * (nope + heads.value), heads.latent)
    out += linear(f"{prefix}.o_proj", hidden, heads.query * heads.value, bias=on(config, family.o_bias))
    return out + _indexer(config, rank, hidden, prefix)


def _indexer(config: ModelConfig, rank: int, hidden: int, prefix: str) -> list[Weight]:
    """DeepSeek V3.2's sparse attention: a small key per token that picks what is attended."""
    size, count = config.number("index_head_dim", 0), config.number("index_n_heads", 0)
    if not size or not config.raw("index_topk"):
        return []
    return [
        *linear(f"{prefix}.indexer.wq_b", count * size, rank or hidden, split=COPY),
        *linear(f"{prefix}.indexer.wk", size, hidden, split=COPY),
        *norm(f"{prefix}.indexer.k_norm", size, bias=True),
        Weight(f"{prefix}.indexer.weights_proj", count, hidden),
    ]
