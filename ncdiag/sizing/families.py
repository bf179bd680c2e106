"""How each model family's decoder is built: what a config does not say and its modelling code does.

One row a family. A switch is True, False, or the name of the config key that decides. Model types that share a
row share the code. Source: `modeling_*.py` of transformers, and of the model repositories for the types that
transformers does not have (internlm2, baichuan, qwen, chatglm, ...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

Switch = bool | str


@dataclass(frozen=True)
class Family:
    """The defaults describe a Llama decoder: no biases, two RMS norms a layer, gated MLP, separate lm_head."""

    qkv_bias: Switch = False
    o_bias: Switch = False
    mlp_bias: Switch = False
    gated: bool = True
    qk_norm: str = ""  # head: one vector of head_dim; full: of all heads; rows: head_dim per head
    qk_norm_if: str = ""  # the config key that turns it on
    qk_norm_bias: bool = False
    q_gate: bool = False  # q_proj also makes an output gate
    sinks: bool = False  # one learned attention sink a head
    norms: int = 2  # vectors of hidden_size in a layer
    norm_bias: Switch = False
    final_norm: bool = True
    embed_norm: bool = False
    positions: int = -1  # learned position embeddings with this many extra rows; -1: none
    head_bias: Switch = False
    router_bias: bool = False
    score_bias: bool = False  # float32 e_score_correction_bias of the router
    expert_bias: bool = False
    shared_gate: bool = False  # hidden_size x 1 gate of the shared expert
    sliding: str = ""  # how layers take sliding_window: all, alternate, pattern, after (see layers.py)
    mixer: str = ""  # what layers without attention are: mamba1, mamba2, delta, conv, lightning
    feed_forward: bool = True  # False: mamba layers stand alone
    tie: bool = False  # tie_word_embeddings where the config is silent
    heads_of: str = ""  # whose heads: "" num_key_value_heads, "falcon", "multi_query"
    special: str = ""  # weights of its own: see decoder.EXTRA


LLAMA = Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
PLAIN = Family()
QWEN2 = Family(qkv_bias=True, sliding="after")
QWEN3 = Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", sliding="after")
QWEN_NEXT = Family(
    qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", q_gate=True, shared_gate=True, mixer="delta"
)
GEMMA = Family(qkv_bias="attention_bias", o_bias="attention_bias", tie=True)
GEMMA2 = replace(GEMMA, norms=4, sliding="alternate")
GEMMA3 = replace(GEMMA, norms=4, qk_norm="head", sliding="pattern")
GPT = Family(qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norm_bias=True, positions=0, tie=True)
MLA = Family(qkv_bias="attention_bias", o_bias="attention_bias")
MLA_V3 = replace(MLA, score_bias=True)
GRANITE_MOE = Family(qkv_bias="attention_bias", o_bias="attention_bias")

FAMILIES: Mapping[str, Family] = {
    "llama": LLAMA,
    "arcee": replace(LLAMA, gated=False),
    "smollm3": replace(LLAMA, tie=True),
    "granite": LLAMA,
    "helium": LLAMA,
    "mllama_text_model": PLAIN,
    "llama4_text": Family(qkv_bias="attention_bias", o_bias="attention_bias", special="llama4"),
    "mistral": Family(sliding="all"),
    "ministral": Family(sliding="pattern"),
    "ministral3": PLAIN,
    "mixtral": Family(sliding="all"),
    "minimax_m2": Family(qk_norm="full", score_bias=True),
    "minimax": Family(mixer="lightning"),
    "minimax_text_01": Family(mixer="lightning"),
    "qwen2": QWEN2,
    "qwen2_moe": Family(qkv_bias="qkv_bias", shared_gate=True, sliding="after"),
    "qwen2_vl": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen3_vl_moe_text": QWEN3,
    "qwen3_omni_moe_text": QWEN3,
    "qwen3_next": QWEN_NEXT,
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe_text": QWEN_NEXT,
    "qwen": Family(qkv_bias=True),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "gemma3n_text": replace(GEMMA3, special="gemma3n"),
    "gemma4_text": replace(GEMMA3, special="gemma4"),
    "phi": Family(
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        gated=False,
        norms=1,
        norm_bias=True,
        head_bias=True,
        qk_norm="head",
        qk_norm_if="qk_layernorm",
        qk_norm_bias=True,
    ),
    "phi3": Family(sliding="all"),
    "phi4mm": Family(sliding="all"),
    "phimoe": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", norm_bias=True, head_bias="lm_head_bias", sliding="all"
    ),
    "gpt_oss": Family(
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        sinks=True,
        router_bias=True,
        expert_bias=True,
        sliding="alternate",
    ),
    "gpt_neox": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias=True, gated=False, norm_bias=True),
    "gptj": Family(mlp_bias=True, gated=False, norms=1, norm_bias=True, head_bias=True),
    "gpt2": GPT,
    "gpt_bigcode": replace(GPT, heads_of="multi_query"),
    "falcon": Family(
        qkv_bias="bias", o_bias="bias", mlp_bias="bias", gated=False, norm_bias=True, tie=True, heads_of="falcon"
    ),
    "opt": replace(
        GPT, qkv_bias="enable_bias", o_bias="enable_bias", mlp_bias="enable_bias", positions=2, special="opt"
    ),
    "bloom": replace(GPT, positions=-1, embed_norm=True),
    "mpt": Family(gated=False, tie=True),
    "starcoder2": Family(
        qkv_bias="use_bias",
        o_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        norm_bias=True,
        sliding="all",
        tie=True,
    ),
    "stablelm": Family(
        qkv_bias="use_qkv_bias", norm_bias=True, qk_norm="rows", qk_norm_if="qk_layernorm", special="stablelm"
    ),
    "stablelm_epoch": Family(qkv_bias="use_qkv_bias", norm_bias=True),
    "cohere": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", norms=1, qk_norm="rows", qk_norm_if="use_qk_norm", tie=True
    ),
    "cohere2": Family(qkv_bias="attention_bias", o_bias="attention_bias", norms=1, sliding="pattern", tie=True),
    "olmo": Family(qkv_bias="attention_bias", o_bias="attention_bias", norms=0, final_norm=False),
    "olmo2": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "olmo3": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full", sliding="pattern"),
    "olmoe": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "flex_olmo": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="full"),
    "apertus": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", gated=False, special="apertus"
    ),
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": GRANITE_MOE,
    "granitemoehybrid": replace(GRANITE_MOE, mixer="mamba2"),
    "glm": Family(qkv_bias="attention_bias"),
    "glm4": Family(qkv_bias="attention_bias", norms=4),
    "chatglm": Family(qkv_bias="add_qkv_bias"),
    "glm4_moe": Family(qkv_bias="attention_bias", qk_norm="head", qk_norm_if="use_qk_norm", score_bias=True),
    "glm4v_moe_text": Family(qkv_bias="attention_bias", score_bias=True),
    "glm4v_text": Family(qkv_bias="attention_bias", norms=4),
    "dots1": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", score_bias=True, sliding="after"
    ),
    "exaone4": Family(qk_norm="head", sliding="pattern"),
    "seed_oss": Family(qkv_bias="attention_bias", o_bias="attention_out_bias", mlp_bias="mlp_bias"),
    "ernie4_5": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", tie=True),
    "ernie4_5_moe": Family(qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", score_bias=True, tie=True),
    "hunyuan_v1_dense": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head"),
    "hunyuan_v1_moe": Family(qkv_bias="attention_bias", o_bias="attention_bias", qk_norm="head", special="hunyuan"),
    "nemotron": Family(
        qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias", gated=False, norm_bias=True
    ),
    "internlm2": Family(qkv_bias="bias", o_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
    "internlm": Family(qkv_bias="bias", o_bias="bias"),
    "baichuan": PLAIN,
    "yi": PLAIN,
    "aquila": PLAIN,
    "minicpm": replace(PLAIN, tie=True),
    "dbrx": PLAIN,
    "deepseek": PLAIN,
    "deepseek_v2": MLA,
    "deepseek_vl_v2": MLA,
    "deepseek_v3": MLA_V3,
    "deepseek_v32": MLA_V3,
    "glm_moe_dsa": MLA_V3,
    "kimi_k2": MLA_V3,
    "glm4_moe_lite": MLA_V3,
    "mistral4": MLA,
    "minicpm3": replace(MLA, mlp_bias="mlp_bias", tie=True),
    "jamba": Family(mixer="mamba1"),
    "bamba": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias", mixer="mamba2"),
    "falcon_h1": Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias", mixer="mamba2"),
    "nemotron_h": Family(mlp_bias="mlp_bias", gated=False, norms=1, score_bias=True, mixer="mamba2"),
    "mamba": Family(norms=1, mixer="mamba1", feed_forward=False, tie=True),
    "falcon_mamba": Family(norms=1, mixer="mamba1", feed_forward=False, tie=True),
    "mamba2": Family(norms=1, mixer="mamba2", feed_forward=False),
    "lfm2": Family(qk_norm="head", mixer="conv", tie=True),
    "lfm2_moe": Family(qk_norm="head", score_bias=True, mixer="conv", tie=True),
}

SAME_AS: Mapping[str, str] = {  # model types that are another type under a new name
    "mistral3_text": "mistral",
    "pixtral_text": "mistral",
    "exaone": "llama",
    "decilm": "llama",
    "solar": "llama",
    "code_llama": "llama",
    "llama4": "llama4_text",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "Yi": "yi",
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "phi-msft": "phi",
    "phi3small": "phi3",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen2_5_omni_text": "qwen2_5_vl_text",
    "qwen2_audio_text": "qwen2",
    "deepseek_v3_text": "deepseek_v3",
    "granitemoehybrid_text": "granitemoehybrid",
    "MiniMaxM1ForCausalLM": "minimax_text_01",
    "minimax_m1": "minimax_text_01",
}


def family_of(model_type: str) -> tuple[Family | None, str]:
    """(the row, the type it was found under); (None, model_type) for a type nobody described."""
    name = SAME_AS.get(model_type, model_type)
    return FAMILIES.get(name), name


def on(config: Any, switch: Switch, default: bool = False) -> bool:
    """Whether a switch is set, by the config where it names a key."""
    return config.flag(switch, default) if isinstance(switch, str) else switch
