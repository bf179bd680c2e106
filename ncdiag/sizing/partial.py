"""The plan of a model that cannot be built from its config: what the files and the keys that are there still tell."""

from __future__ import annotations

from typing import Any

from ncdiag.sizing.cache import layer_caches, token_bytes
from ncdiag.sizing.checkpoint import Checkpoint
from ncdiag.sizing.config import ConfigError, ModelConfig
from ncdiag.sizing.decoder import open_decoder
from ncdiag.sizing.gpus import Cluster

GIB = 2**30


def partial_plan(
    config: ModelConfig, checkpoint: Checkpoint | None, cluster: Cluster, utilization: float, reason: str
) -> dict[str, Any]:
    """A plan with null where nothing is known. Raises ConfigError when not even one figure is."""
    cache = _cache_bytes(config)
    if checkpoint is None and cache is None:
        raise ConfigError(f"{reason} (model type {config.model_type!r}, and no weights beside it to measure)")
    total = checkpoint.total_bytes if checkpoint else None
    layouts = [_layout(total, cluster, utilization, tp) for tp in _sizes(cluster)] if total else []
    unknown = [name for name, value in (("weights", total), ("KV cache", cache)) if value is None]
    return {
        "model": {
            "architecture": config.architecture,
            "model_type": config.model_type,
            "known": False,
            "parameters": checkpoint.parameters if checkpoint else None,
            "weights_bytes": total,
            "kv_bytes_per_token": cache,
            "source": f"files: {checkpoint.source}" if checkpoint else "config.json",
        },
        "layouts": layouts,
        "recommended": {
            "tp": None,
            "pp": None,
            "gpus": None,
            "fits": None,
            "why": f"not known: {reason}",
            "reasons": [reason],
        },
        "commands": [],
        "warnings": [f"the model cannot be counted: {reason}", *(f"{name}: not known" for name in unknown)],
    }


def _cache_bytes(config: ModelConfig) -> int | None:
    try:
        return token_bytes(layer_caches(open_decoder(config), 2, 2))
    except ConfigError:
        return None


def _sizes(cluster: Cluster) -> list[int]:
    return [tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp <= min(cluster.domain, cluster.total)]


def _layout(total: int, cluster: Cluster, utilization: float, tp: int) -> dict[str, Any]:
    share = total // tp
    left = cluster.gpu.usable_bytes * utilization - share
    why = f"{share / GIB:.1f} GiB of weights, evenly split"
    why += (
        f", leave {left / GIB:.1f} GiB for everything else; the KV cache is not known"
        if left > 0
        else ": more than the GPU"
    )
    fits = None if left > 0 else False
    return {"tp": tp, "pp": 1, "gpus": tp, "fits": fits, "weights_bytes_per_gpu": share, "kv_tokens": None, "why": why}
