"""The KV cache: what each layer keeps for a token or a sequence, and how many tokens a pool holds.

`capacity` follows vLLM's own arithmetic, so that its figure is the one in the line `GPU KV cache size: N tokens`:
layers of one kind form groups of equal size, all groups draw blocks from one pool, and a request at max-model-len
takes from each group what that kind needs. Source: vLLM 0.32 `v1/core/kv_cache_utils.py` (get_kv_cache_groups,
get_max_concurrency_for_kv_cache_config) and `v1/kv_cache_interface.py` (page sizes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncdiag.sizing import special
from ncdiag.sizing.decoder import Decoder
from ncdiag.sizing.layers import BOTH, CHUNKED, FULL, NONE, SLIDING, STATE, window_of
from ncdiag.sizing.recurrent import STATES

BLOCK = 16  # tokens in a block: vLLM's default
STATE_BLOCKS = 2  # a sequence's state and its last checkpoint for the prefix cache (mamba_cache_mode align)
FP8_DS_MLA = 656  # bytes of a token and layer of DeepSeek V3.2's fp8 cache; source: flashmla_sparse.py
INDEXER_SCALE = 4  # float32 scale beside each FP8 key of the indexer


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps. Either bytes for each token, or one state for each sequence."""

    kind: str  # full, sliding, chunked, state
    token_bytes: int = 0  # all KV heads together
    heads: int = 1  # KV heads the cache is divided by; 1: every TP rank holds all of it (MLA, one head)
    window: int = 0  # tokens a sliding or chunked layer keeps
    state_bytes: int = 0  # one sequence's state, all heads together

    def on_rank(self, tp: int) -> LayerCache:
        """The share of one tensor-parallel rank: whole heads, at least one."""
        share = -(-self.heads // tp)
        return replace(
            self,
            token_bytes=self.token_bytes // self.heads * share,
            heads=share,
            state_bytes=-(-self.state_bytes // tp),
        )


def layer_caches(decoder: Decoder, kv_bytes: float, dtype_bytes: float) -> list[list[LayerCache]]:
    """For each layer of the model what it keeps; empty for a layer that keeps nothing. kv_bytes: of one number."""
    return [_layer(decoder, index, kv_bytes, dtype_bytes) for index in range(len(decoder.kinds))]


def _layer(decoder: Decoder, index: int, kv_bytes: float, dtype_bytes: float) -> list[LayerCache]:
    config, family, kind = decoder.config, decoder.family, decoder.kinds[index]
    out: list[LayerCache] = []
    if kind in (STATE, BOTH):
        out.append(LayerCache(STATE, state_bytes=_state_bytes(decoder, dtype_bytes)))
    if kind in (STATE, NONE):
        return out
    if family.special in ("gemma3n", "gemma4") and special.shares_kv(config, index, len(decoder.kinds)):
        return out
    heads = special.gemma4_heads(config, decoder.heads, kind) if family.special == "gemma4" else decoder.heads
    token = int(heads.cached * kv_bytes)
    if heads.latent and config.raw("index_topk"):
        token = FP8_DS_MLA if kv_bytes == 1 else token
        token += config.number("index_head_dim", 128) + INDEXER_SCALE
    kept = kind if kind in (SLIDING, CHUNKED) else FULL
    return [*out, LayerCache(kept, token, 1 if heads.latent else heads.kv, window_of(config, kept))]


def _state_bytes(decoder: Decoder, dtype_bytes: float) -> int:
    mixer = STATES.get(decoder.family.mixer)
    if mixer is None:
        return 0
    state = mixer(decoder.config)
    named = decoder.config.raw("mamba_ssm_cache_dtype") or decoder.config.raw("mamba_ssm_dtype")
    wide = 4 if named == "float32" or decoder.family.mixer == "lightning" else dtype_bytes
    return int(state.conv * dtype_bytes + state.ssm * wide)


def token_bytes(caches: Sequence[Sequence[LayerCache]]) -> int:
    """Bytes one token takes over all layers of the whole model."""
    return sum(cache.token_bytes for layer in caches for cache in layer)


def sequence_bytes(caches: Sequence[Sequence[LayerCache]]) -> int:
    """Bytes one sequence takes however long it is: recurrent states."""
    return sum(cache.state_bytes for layer in caches for cache in layer)


def capacity(pool: float, caches: Sequence[LayerCache], max_model_len: int, in_flight: int, block: int = BLOCK) -> int:
    """Tokens a pool of `pool` bytes holds when requests are max_model_len long; 0 when not even one block fits.

    in_flight: tokens scheduled and not yet settled (max_num_batched_tokens, twice that with async scheduling).
    """
    kept = [cache for cache in caches if cache.token_bytes or cache.state_bytes]
    if not kept:
        return max_model_len if pool > 0 else 0
    pages, sizes = _pages(kept, block)
    groups, group_bytes = _groups(kept, pages)
    blocks = int(pool // group_bytes) if pool > 0 and group_bytes else 0
    needed = sum(count * _blocks(cache, sizes[key], max_model_len, in_flight) for key, (cache, count) in groups.items())
    return blocks * max_model_len // needed if needed else 0


def _key(cache: LayerCache) -> tuple[str, int, int]:
    return cache.kind, cache.window, cache.token_bytes if cache.kind != STATE else 0


def _pages(kept: Sequence[LayerCache], block: int) -> tuple[int, dict[tuple[str, int, int], int]]:
    """(bytes of the page all layers share, tokens in a block of each kind). Smaller tokens get larger blocks."""
    widest = max((cache.token_bytes for cache in kept), default=0)
    state = max((cache.state_bytes for cache in kept), default=0)
    if not widest:
        return state, {_key(cache): block for cache in kept}
    base = block
    if state > widest * block:  # the attention block grows until its page holds a state
        base = block * -(-state // (widest * block))
    page = widest * base
    return page, {_key(cache): page // cache.token_bytes if cache.token_bytes else base for cache in kept}


def _groups(kept: Sequence[LayerCache], page: int) -> tuple[dict[tuple[str, int, int], tuple[LayerCache, int]], int]:
    """(for each kind its groups, bytes of one block over the layers of a group)."""
    kinds: dict[tuple[str, int, int], list[LayerCache]] = {}
    for cache in kept:
        kinds.setdefault(_key(cache), []).append(cache)
    if len(kinds) == 1:
        key, members = next(iter(kinds.items()))
        return {key: (members[0], 1)}, page * len(members)
    counts = [len(members) for members in kinds.values()]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    return {key: (members[0], -(-len(members) // size)) for key, members in kinds.items()}, page * size


def _blocks(cache: LayerCache, block: int, max_model_len: int, in_flight: int) -> int:
    """Blocks one group hands to a request of max_model_len."""
    if cache.kind == STATE:
        return STATE_BLOCKS
    if cache.kind == SLIDING:
        return -(-min(cache.window - 1 + in_flight, max_model_len) // block) + 1
    if cache.kind == CHUNKED:
        return -(-min(cache.window + in_flight, max_model_len) // block)
    return -(-max_model_len // block)
