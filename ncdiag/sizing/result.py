"""The parts of a plan as plain JSON. All bytes are whole-model figures unless the key says `_per_gpu`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ncdiag.nodeset import counted
from ncdiag.sizing.cache import sequence_bytes, token_bytes
from ncdiag.sizing.checkpoint import Checkpoint
from ncdiag.sizing.commands import Extra, commands
from ncdiag.sizing.config import ModelConfig
from ncdiag.sizing.feedforward import experts_per_token
from ncdiag.sizing.gpus import CUDA_HELD_MIB, Cluster
from ncdiag.sizing.layouts import Layout, Load, Model
from ncdiag.sizing.memory import GIB
from ncdiag.sizing.quantise import dtype_of
from ncdiag.sizing.recommend import Choice
from ncdiag.sizing.way_out import Change


def _parameters(model: Model, checkpoint: Checkpoint | None) -> int:
    if checkpoint and checkpoint.parameters and not model.decoder.known:
        return checkpoint.parameters
    return model.inventory.parameters


def model_json(model: Model, config: ModelConfig, checkpoint: Checkpoint | None, longest: int) -> dict[str, Any]:
    source = {"index": "model.safetensors.index.json", "headers": "safetensors headers", "files": "sizes of .bin files"}
    experts = model.decoder.experts
    active = model.inventory.active_parameters(experts, experts_per_token(model.decoder.config)) if experts else None
    heads = model.decoder.heads
    return {
        "architecture": config.architecture,
        "model_type": model.decoder.config.model_type,
        "known": model.decoder.known,
        "parameters": _parameters(model, checkpoint),
        "parameters_active": active,
        "weights_bytes": model.weights_bytes,
        "kv_bytes_per_token": token_bytes(model.caches),
        "state_bytes_per_sequence": sequence_bytes(model.caches),
        "source": source[checkpoint.source] if checkpoint else "config.json: parameters x dtype",
        "dtype": dtype_of(model.decoder.config)[0],
        "quantization": model.quantisation.name,
        "layers": len(model.decoder.kinds),
        "attention_heads": heads.query,
        "kv_heads": 1 if heads.latent else heads.kv,
        "experts": experts,
        "tied_embeddings": model.inventory.tied,
        "max_model_len": longest or None,
    }


def cluster_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "gpu": cluster.gpu.name,
        "gpus_per_node": cluster.per_node,
        "nodes": cluster.nodes,
        "memory_bytes_per_gpu": cluster.gpu.usable_bytes,
        "nvlink_domain": cluster.gpu.domain,
        "assumed": cluster.assumed,
    }


def load_json(load: Load, kv_dtype: str) -> dict[str, Any]:
    return {
        "max_model_len": load.max_model_len,
        "concurrency": load.concurrency,
        "gpu_memory_utilization": load.utilization,
        "max_num_batched_tokens": load.batched_tokens,
        "kv_cache_dtype": kv_dtype,
    }


def layout_json(layout: Layout) -> dict[str, Any]:
    return {
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "gpus": layout.gpus,
        "nodes": layout.nodes,
        "replicas": layout.replicas,
        "fits": layout.fits,
        "weights_bytes_per_gpu": layout.weights_bytes,
        "overhead_bytes_per_gpu": layout.overhead.total,
        "kv_pool_bytes_per_gpu": max(layout.pool_bytes, 0),
        "kv_tokens": layout.kv_tokens,
        "requests_per_engine": layout.requests,
        "why": layout.why,
    }


def recommended(
    choice: Choice, load: Load, cluster: Cluster, extra: Extra, would_fit: Sequence[Change]
) -> dict[str, Any]:
    """`would_fit`: where nothing fits, what would have to change."""
    layout = choice.layout
    base: dict[str, Any] = layout_json(layout) if layout else {"tp": None, "pp": None, "gpus": None, "fits": False}
    base.update(max_model_len=load.max_model_len, why="; ".join(choice.reasons), reasons=list(choice.reasons))
    if not layout:
        base["would_fit"] = [change.as_dict() for change in would_fit]
    if choice.quantised:
        name, smaller = choice.quantised
        quantised = replace(extra, quantization="fp8") if name == "fp8" else extra
        one = replace(cluster, nodes=1)
        line = commands(smaller, one, load, quantised)[0]
        base["quantise_first"] = {
            "quantization": name,
            **layout_json(smaller),
            "command": line if name == "fp8" else None,
        }
    return base


def assumptions(model: Model, choice: Choice, found: list[Layout], cluster: Cluster, load: Load) -> list[str]:
    layout = choice.layout or (found[-1] if found else None)
    gpu = cluster.gpu
    out = []
    if cluster.assumed:
        out.append("GPUs: none named, one node of 8 H100 is assumed (--gpus H100x8)")
    out.append(
        f"GPU memory: {gpu.usable_bytes / GIB:.1f} GiB of {gpu.memory_mib} MiB, {CUDA_HELD_MIB} MiB are the driver's"
    )
    if layout:
        spare = layout.overhead
        out += [
            f"activations: {spare.activations / GIB:.1f} GiB a GPU at the peak of a batch of {load.batched_tokens} tokens",
            f"CUDA context and workspaces {spare.context / GIB:.1f} GiB, NCCL buffers {spare.communication / GIB:.1f} GiB,"
            f" CUDA graphs {spare.graphs / GIB:.1f} GiB",
        ]
    out.append(
        f"load: {counted(load.concurrency, 'request')} of {load.max_model_len} tokens at once, shared out over the replicas"
    )
    return out
