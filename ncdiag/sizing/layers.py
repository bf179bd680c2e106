"""What each decoder layer is: full, sliding, chunked, recurrent attention or none; dense, experts or nothing.

The rules are those of the modelling code; `layer_types` of a newer config wins where it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from ncdiag.sizing.config import MAX_LAYERS, ConfigError, ModelConfig
from ncdiag.sizing.families import Family

FULL, SLIDING, CHUNKED, STATE, BOTH, NONE = "full", "sliding", "chunked", "state", "both", "none"
DENSE, EXPERTS = "dense", "experts"
LAYER_TYPES: Mapping[str, str] = {
    "full_attention": FULL,
    "attention": FULL,
    "indexed_attention": FULL,
    "compressed_sparse_attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": STATE,
    "mamba": STATE,
    "mamba2": STATE,
    "conv": STATE,
    "hybrid": BOTH,
    "moe": NONE,
    "mlp": NONE,
}
NEMOTRON = {"M": STATE, "*": FULL, "-": NONE, "E": NONE}  # hybrid_override_pattern, one character a layer


def count_layers(config: ModelConfig) -> int:
    """Raises ConfigError for a model without layers, or with more than any has."""
    pattern, blocks = config.raw("hybrid_override_pattern"), config.items("layers_block_type")
    if isinstance(pattern, str) and pattern:
        total = len(pattern.split("/")[0].replace("|", ""))
    else:
        total = len(blocks) if blocks else config.number("num_hidden_layers")
    if not 1 <= total <= MAX_LAYERS:
        raise ConfigError(f"{config.path}: the model has {total} layers; expected 1 to {MAX_LAYERS}")
    return total


def attention_kinds(config: ModelConfig, family: Family) -> list[str]:
    """One kind a layer, in order."""
    total = count_layers(config)
    for reader in (_listed, _patterned, _periodic):
        kinds = reader(config, family, total)
        if kinds:
            return (kinds + [kinds[-1]] * total)[:total]
    return [FULL] * total


def window_of(config: ModelConfig, kind: str) -> int:
    """Tokens a sliding or chunked layer can see; 0 for a layer that sees all."""
    if kind == SLIDING:
        return config.number("sliding_window", 0) or config.number("window_size", 0)
    return config.number("attention_chunk_size", 8192) if kind == CHUNKED else 0


def _listed(config: ModelConfig, family: Family, total: int) -> list[str]:
    for key in ("layer_types", "layers_block_type", "block_types"):
        names = config.items(key)
        if names:
            kinds = [LAYER_TYPES.get(str(name), FULL) for name in names]
            return [FULL if kind == SLIDING and not window_of(config, SLIDING) else kind for kind in kinds]
    if config.items("attn_type_list"):  # MiniMax: 0 lightning, 1 softmax
        return [FULL if value else STATE for value in config.items("attn_type_list")]
    return []


def _patterned(config: ModelConfig, family: Family, total: int) -> list[str]:
    pattern = config.raw("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return [NEMOTRON.get(mark, NONE) for mark in pattern.split("/")[0].replace("|", "")]
    for key in ("attn_layer_indices", "full_attn_idxs"):
        if config.items(key):
            return [FULL if index in config.items(key) else STATE for index in range(total)]
    if config.raw("attn_layer_period") is not None or config.model_type == "jamba":
        period, offset = config.number("attn_layer_period", 8) or 1, config.number("attn_layer_offset", 4)
        return [FULL if index % period == offset else STATE for index in range(total)]
    if family.mixer == "delta":
        period = config.number("full_attention_interval", 4) or 1
        return [STATE if (index + 1) % period else FULL for index in range(total)]
    if config.model_type == "falcon_h1":
        return [BOTH] * total
    if family.mixer == "lightning":
        return [STATE if (index + 1) % 2 else FULL for index in range(total)]
    if family.mixer in ("mamba1", "mamba2", "conv"):
        return [STATE] * total
    return []


def _periodic(config: ModelConfig, family: Family, total: int) -> list[str]:
    if family.special == "llama4":
        listed, step = config.items("no_rope_layers"), config.number("no_rope_layer_interval", 4) or 1
        rope = listed if listed else [int((index + 1) % step != 0) for index in range(total)]
        return [CHUNKED if value else FULL for value in rope] if config.raw("attention_chunk_size") else []
    if not window_of(config, SLIDING):
        return []
    if family.sliding == "all":
        return [SLIDING] * total
    if family.sliding == "alternate":
        return [FULL if index % 2 else SLIDING for index in range(total)]
    if family.sliding == "after":
        start = config.number("max_window_layers", 28) if config.flag("use_sliding_window") else total
        return [SLIDING if index >= start else FULL for index in range(total)]
    if family.sliding == "pattern":
        return _pattern(config, total)
    return []


def _pattern(config: ModelConfig, total: int) -> list[str]:
    raw = config.raw("sliding_window_pattern") or config.raw("_sliding_window_pattern")
    if isinstance(raw, str) and raw:  # EXAONE 4: "LLLG", the last layer is always global
        kinds = [SLIDING if raw[index % len(raw)] == "L" else FULL for index in range(total)]
        return [*kinds[:-1], FULL]
    default = {"gemma3_text": 6, "gemma3": 6, "gemma4_text": 6, "gemma4": 6, "gemma3n_text": 5, "gemma3n": 5}
    step = config.whole("sliding_window_pattern", raw) if raw else default.get(config.model_type, 4)
    return [SLIDING if (index + 1) % max(step, 1) else FULL for index in range(total)]


def feed_forward_kinds(config: ModelConfig, family: Family, experts: int) -> list[str]:
    """Dense, experts or none for each layer, in order."""
    total = count_layers(config)
    pattern, blocks = config.raw("hybrid_override_pattern"), config.items("layers_block_type")
    if isinstance(pattern, str) and pattern:
        return [{"-": DENSE, "E": EXPERTS}.get(mark, NONE) for mark in pattern.split("/")[0].replace("|", "")]
    if blocks:
        return [{"mlp": DENSE, "moe": EXPERTS}.get(str(name), NONE) for name in blocks]
    if not family.feed_forward:
        return [NONE] * total
    if not experts:
        return [DENSE] * total
    listed = config.items("mlp_layer_types")
    if listed:
        kinds = [EXPERTS if name == "sparse" else DENSE for name in listed]
        return (kinds + [EXPERTS] * total)[:total]
    return [EXPERTS if _sparse(config, family, index, total) else DENSE for index in range(total)]


def _sparse(config: ModelConfig, family: Family, index: int, total: int) -> bool:
    if config.items("moe_layers"):
        return index in config.items("moe_layers")
    if family.special == "llama4":
        return (index + 1) % (config.number("interleave_moe_layer_step", 1) or 1) == 0
    if config.model_type == "jamba":
        period = config.number("expert_layer_period", 2) or 1
        return index % period == config.number("expert_layer_offset", 1)
    if config.model_type == "ernie4_5_moe":
        start, end = config.number("moe_layer_start_index", 1), config.raw("moe_layer_end_index")
        last = total - 1 if not isinstance(end, int) or end < 0 else end
        return start <= index <= last and (index + 1) % (config.number("moe_layer_interval", 1) or 1) == 0
    if index in config.items("mlp_only_layers"):
        return False
    dense = config.number("first_k_dense_replace", 0) or config.number("num_dense_layers", 0)
    step = config.number("moe_layer_freq", 1) if isinstance(config.raw("moe_layer_freq"), int) else 1
    if isinstance(config.raw("moe_layer_freq"), list):
        listed = config.items("moe_layer_freq")
        return bool(listed[index]) if index < len(listed) else True
    return (
        index >= dense
        and index % max(step, 1) == 0
        and (index + 1) % (config.number("decoder_sparse_step", 1) or 1) == 0
    )
