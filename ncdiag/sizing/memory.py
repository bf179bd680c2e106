"""What one GPU holds beside weights and KV cache. Every figure is an assumption, and is printed as one.

vLLM measures these at start-up with a dummy forward pass (`profile_run`); before the launch they can only be
estimated. The constants were fitted to start-up logs from real GPUs (tests/sizing/test_published_logs.py says how
far off they are).
"""

from __future__ import annotations

from dataclasses import dataclass

from ncdiag.sizing.decoder import Decoder
from ncdiag.sizing.feedforward import expert_width, experts_per_token, shared_width

GIB = 2**30
CONTEXT_BYTES = int(0.6 * GIB)  # CUDA context, cuBLAS workspaces, Triton modules
NCCL_BYTES = int(0.9 * GIB)  # NCCL channels and custom all-reduce buffers of a GPU in a group, TP > 1
GRAPH_BYTES = int(0.6 * GIB)  # CUDA graphs of the default capture sizes
MLA_TOKENS = 65536  # context that MLA's chunked prefill decompresses at a time; source: mla/common.py
SAMPLER_ROWS = 1024  # vLLM's default max_num_seqs on large GPUs, 256 on small ones
SAMPLER_COPIES = 2.5  # logits in float32, and what top-p sorts


@dataclass(frozen=True)
class Overhead:
    """Bytes of one GPU that are neither weights nor KV cache."""

    activations: int
    context: int
    communication: int
    graphs: int

    @property
    def total(self) -> int:
        return self.activations + self.context + self.communication + self.graphs


def overhead(decoder: Decoder, tp: int, pp: int, batched_tokens: int, dtype_bytes: float) -> Overhead:
    """For one rank of a tp x pp layout that is profiled with batched_tokens tokens."""
    peak = max(_forward(decoder, tp, batched_tokens, dtype_bytes), _sampler(decoder, batched_tokens))
    peak += _latent_workspace(decoder, tp, dtype_bytes)
    return Overhead(int(peak), CONTEXT_BYTES, NCCL_BYTES if tp * pp > 1 else 0, GRAPH_BYTES)


def _forward(decoder: Decoder, tp: int, tokens: int, dtype_bytes: float) -> float:
    """Residual, normed and attention activations, and the widest feed-forward a layer has."""
    config = decoder.config
    hidden = config.number("hidden_size")
    attention = decoder.heads.query * (decoder.heads.size + decoder.heads.value) / tp
    if decoder.experts:
        routed = experts_per_token(config)
        wide = routed * (2 * expert_width(config) / tp + hidden) + 2 * shared_width(config) / tp
    else:
        value = config.raw("intermediate_size")
        width = max((n for n in value if isinstance(n, int)), default=0) if isinstance(value, list) else 0
        wide = 3 * (width or config.number("intermediate_size", 4 * hidden)) / tp
    return tokens * dtype_bytes * (4 * hidden + max(attention, wide))


def _sampler(decoder: Decoder, batched_tokens: int) -> float:
    rows = SAMPLER_ROWS if batched_tokens >= 8192 else SAMPLER_ROWS // 4
    return rows * decoder.config.number("vocab_size") * 4 * SAMPLER_COPIES


def _latent_workspace(decoder: Decoder, tp: int, dtype_bytes: float) -> float:
    heads = decoder.heads
    return MLA_TOKENS * heads.query / tp * (heads.size - heads.rope + heads.value) * dtype_bytes if heads.latent else 0
