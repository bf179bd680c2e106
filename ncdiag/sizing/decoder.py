"""The whole decoder of a config as one `Inventory`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ncdiag.sizing import special
from ncdiag.sizing.adapt import adapted
from ncdiag.sizing.attention import Heads, attention_weights, heads_of
from ncdiag.sizing.config import ConfigError, ModelConfig
from ncdiag.sizing.defaults import DEFAULTS
from ncdiag.sizing.encoders import encoder_weights
from ncdiag.sizing.families import Family, family_of, on
from ncdiag.sizing.feedforward import dense_weights, expert_count, expert_weights, experts_per_token
from ncdiag.sizing.layers import BOTH, DENSE, EXPERTS, FULL, NONE, STATE, attention_kinds, feed_forward_kinds
from ncdiag.sizing.recurrent import MIXERS
from ncdiag.sizing.weights import TP, Inventory, Weight, linear, norm

MAX_PREDICTORS = 16


@dataclass(frozen=True)
class Decoder:
    """A config with its family: what every count starts from."""

    config: ModelConfig
    family: Family
    known: bool  # False: the model type is not described, Llama's decoder stands in
    heads: Heads
    kinds: list[str]  # attention kind of each layer
    feeds: list[str]  # feed-forward kind of each layer
    experts: int  # routed experts of a layer, 0: dense


def open_decoder(config: ModelConfig) -> Decoder:
    """Finds the family, fills in its defaults. Raises ConfigError where no layer can be built."""
    family, name = family_of(config.model_type)
    known = family is not None
    text = dict(adapted(name, config.text))
    text["model_type"] = name
    config = replace(config, text=text, defaults=DEFAULTS.get(name) or DEFAULTS.get(f"{name}_text", {}))
    family = family or Family(qkv_bias="attention_bias", o_bias="attention_bias", mlp_bias="mlp_bias")
    if config.model_type == "mpt":
        family = replace(family, qkv_bias="use_bias", o_bias="use_bias", mlp_bias="use_bias", norm_bias="use_bias")
        family = replace(family, positions=0 if config.flag("learned_positions") else -1)
    kinds = attention_kinds(config, family)
    has_heads = any(kind not in (STATE, NONE) for kind in kinds)
    heads = heads_of(config, family) if has_heads else Heads(0, 0, 0, 0)
    experts = 0 if family.special == "gemma4" else expert_count(config)
    found = Decoder(config, family, known, heads, kinds, feed_forward_kinds(config, family, experts), experts)
    _must_agree(found)
    return found


def _must_agree(decoder: Decoder) -> None:
    """Raises ConfigError where two of its numbers cannot be of one model."""
    config, chosen = decoder.config, experts_per_token(decoder.config)
    if decoder.experts and chosen > decoder.experts:
        raise ConfigError(f"{config.path}: a token takes {chosen} experts, and a layer has {decoder.experts}")
    widths = config.items("intermediate_size")
    if len(widths) not in (0, 1, len(decoder.kinds)):
        raise ConfigError(
            f"{config.path}: intermediate_size has {len(widths)} entries for {len(decoder.kinds)} layers; expected one a layer"
        )


def uneven(decoder: Decoder) -> list[str]:
    """A note where the size of a head is the rest of a division."""
    config, heads = decoder.config, decoder.heads
    told = any(config.raw(key) for key in ("head_dim", "attention_head_dim")) or heads.latent
    hidden = config.number("hidden_size")
    if not heads.query or told or not hidden % heads.query:
        return []
    return [
        f"hidden_size {hidden} does not divide by {heads.query} attention heads, and no head_dim is given: {heads.size} is assumed;"
        " transformers and vLLM refuse most models of that shape"
    ]


def is_tied(decoder: Decoder) -> bool:
    """Whether lm_head is the embedding. A multimodal config's outer value wins, as in transformers."""
    config = decoder.config
    for source in (config.outer, config.text, config.defaults):
        if isinstance(source.get("tie_word_embeddings"), bool):
            return bool(source["tie_word_embeddings"])
    return decoder.family.tie


def build(decoder: Decoder) -> Inventory:
    """All weights of the decoder, in the checkpoint's own order of layers."""
    config = decoder.config
    layers = [_layer(decoder, index) for index in range(len(decoder.kinds))]
    tied = is_tied(decoder)
    encoder, notes = encoder_weights(config, config.number("hidden_size"))
    first, last, spare = _first(decoder), _last(decoder, tied), _predictors(decoder)
    return Inventory(first, layers, last, tied, encoder, spare, tuple(notes), _copies(decoder))


def _first(decoder: Decoder) -> list[Weight]:
    config, family = decoder.config, decoder.family
    hidden = config.number("hidden_size")
    width = config.number("word_embed_proj_dim", hidden) if family.special == "opt" else hidden
    out = [Weight("model.embed_tokens", config.number("vocab_size"), width, split=TP)]
    if family.positions >= 0:
        out.append(Weight("model.wpe", config.number("max_position_embeddings") + family.positions, hidden))
    if family.embed_norm:
        out += norm("model.embed_norm", hidden, bias=True)
    extra = special.EXTRA.get(family.special)
    return out + (extra.first(config, len(decoder.kinds)) if extra else [])


def _last(decoder: Decoder, tied: bool) -> list[Weight]:
    config, family = decoder.config, decoder.family
    hidden = config.number("hidden_size")
    final = family.final_norm and not (family.special == "opt" and not config.flag("do_layer_norm_before", True))
    out = norm("model.norm", hidden, on(config, family.norm_bias)) if final else []
    biased = on(config, family.head_bias)
    if config.model_type == "ernie4_5_moe":
        biased = config.flag("use_bias")
    if not tied:
        out += linear("lm_head", config.number("vocab_size"), hidden, bias=biased)
    return out


def _layer(decoder: Decoder, index: int) -> list[Weight]:
    config, family, kind = decoder.config, decoder.family, decoder.kinds[index]
    prefix = f"model.layers.{index}"
    shared = special.shares_kv(config, index, len(decoder.kinds)) if family.special in ("gemma3n", "gemma4") else False
    out: list[Weight] = []
    if kind in (STATE, BOTH):
        out += MIXERS[family.mixer](config, f"{prefix}.mixer") if family.mixer in MIXERS else []
    if kind not in (STATE, NONE):
        heads = special.gemma4_heads(config, decoder.heads, kind) if family.special == "gemma4" else decoder.heads
        mine = attention_weights(config, family, heads, f"{prefix}.self_attn")
        out += special.gemma4_adjust(config, mine, kind, shared) if family.special == "gemma4" else mine
    out += _feed_forward(decoder, index, shared) + _norms(decoder, prefix)
    extra = special.EXTRA.get(family.special)
    return extra.layer(config, out, prefix) if extra else out


def _feed_forward(decoder: Decoder, index: int, shared: bool) -> list[Weight]:
    config, family, kind = decoder.config, decoder.family, decoder.feeds[index]
    prefix = f"model.layers.{index}.mlp"
    if kind == EXPERTS:
        out = expert_weights(config, family, prefix, decoder.experts)
        return out + (dense_weights(config, family, prefix, index) if config.flag("parallel_dense_mlp") else [])
    if kind != DENSE:
        return []
    if family.special == "gemma4":
        return special.gemma4_mlp(config, prefix, shared)
    width = config.number("shared_intermediate_size", 0)
    if config.model_type == "granitemoehybrid" and width:  # the dense sizes of this family are all "shared"
        return dense_weights(replace(config, text={**config.text, "intermediate_size": width}), family, prefix)
    return dense_weights(config, family, prefix, index)


def _norms(decoder: Decoder, prefix: str) -> list[Weight]:
    config, family = decoder.config, decoder.family
    count = family.norms
    if family.heads_of == "falcon":
        count = _falcon_norms(config)
    if family.special == "stablelm" and config.flag("use_parallel_residual"):
        count = 1
    if not family.feed_forward:
        count = 1
    biased, out = on(config, family.norm_bias), []
    for number in range(count):
        out += norm(f"{prefix}.norm{number}", config.number("hidden_size"), biased)
    return out


def _falcon_norms(config: ModelConfig) -> int:
    if config.flag("new_decoder_architecture"):
        return config.number("num_ln_in_parallel_attn", 2) or 2
    return 1 if config.flag("parallel_attn", True) else 2


def _copies(decoder: Decoder) -> list[Weight]:
    """Falcon 7B to 180B tie lm_head, say nothing of it in the config, and store it all the same."""
    config = decoder.config
    if config.model_type != "falcon" or "tie_word_embeddings" in config.text:
        return []
    return linear("lm_head", config.number("vocab_size"), config.number("hidden_size"))


def _predictors(decoder: Decoder) -> list[Weight]:
    """Multi-token prediction layers: in the checkpoint, not loaded unless speculative decoding asks for them."""
    config = decoder.config
    if decoder.family.q_gate:
        return _shared_predictors(decoder)
    count = config.number("num_nextn_predict_layers", 0)
    if not count or not decoder.experts or config.model_type == "nemotron_h":
        return []
    hidden, out = config.number("hidden_size"), []
    for number in range(min(count, MAX_PREDICTORS)):
        prefix = f"model.layers.{len(decoder.kinds) + number}"
        out += _copied_layer(decoder, len(decoder.kinds) - 1, prefix)
        out += [
            Weight(f"{prefix}.embed_tokens", config.number("vocab_size"), hidden),
            Weight(f"{prefix}.shared_head.head", config.number("vocab_size"), hidden),
            Weight(f"{prefix}.eh_proj", hidden, 2 * hidden),
            *[Weight(f"{prefix}.{name}", hidden) for name in ("enorm", "hnorm", "shared_head.norm")],
        ]
    return out


def _shared_predictors(decoder: Decoder) -> list[Weight]:
    """Qwen3-Next and Qwen3.5: full-attention layers that share embedding and head. Qwen3-Next's config is silent."""
    config = decoder.config
    count = config.number("mtp_num_hidden_layers", int(config.model_type == "qwen3_next"))
    if not count or FULL not in decoder.kinds:
        return []
    hidden, source = config.number("hidden_size"), decoder.kinds.index(FULL)
    out = [Weight("mtp.fc", hidden, 2 * hidden), *[Weight(f"mtp.norm{number}", hidden) for number in range(3)]]
    for number in range(min(count, MAX_PREDICTORS)):
        out += _copied_layer(decoder, source, f"mtp.layers.{number}")
    return out


def _copied_layer(decoder: Decoder, index: int, prefix: str) -> list[Weight]:
    old = f"model.layers.{index}."
    return [replace(weight, name=weight.name.replace(old, prefix + ".")) for weight in _layer(decoder, index)]
