"""From a config and a cluster to the plan: the dict that `ncdiag plan --format json` prints.

Keys: schema, model, cluster, load, assumptions, layouts, recommended, commands, warnings. All bytes are whole-model
figures unless the key says `_per_gpu`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncdiag.sizing.cache import layer_caches, sequence_bytes, token_bytes
from ncdiag.sizing.checkpoint import Checkpoint, read_checkpoint
from ncdiag.sizing.commands import Extra, commands
from ncdiag.sizing.config import ConfigError, ModelConfig, load_config, read_json
from ncdiag.sizing.decoder import build, open_decoder
from ncdiag.sizing.feedforward import experts_per_token
from ncdiag.sizing.gpus import CUDA_HELD_MIB, Cluster
from ncdiag.sizing.layouts import Layout, Load, Model, layouts
from ncdiag.sizing.memory import GIB
from ncdiag.sizing.quantise import DTYPE_BYTES, dtype_of, quantisation_of, stored_bytes
from ncdiag.sizing.recommend import Choice, choose, shorter_length
from ncdiag.sizing.traps import traps

DEFAULT_LENGTH = 4096
KV_BYTES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "int8": 1.0, "bfloat16": 2.0, "float16": 2.0}


@dataclass(frozen=True)
class Request:
    """What the user asked. None: take the default and say so."""

    path: Path
    cluster: Cluster
    max_model_len: int | None = None
    concurrency: int = 1
    kv_dtype: str = "auto"
    dtype: str = "auto"
    utilization: float = 0.90
    batched_tokens: int | None = None


def make_plan(request: Request) -> dict[str, Any]:
    """Raises ConfigError when the config cannot be read at all."""
    config = load_config(request.path)
    folder = request.path if request.path.is_dir() else request.path.parent
    checkpoint, warnings = read_checkpoint(folder)
    config, more = _with_side_files(config, folder)
    model, notes = _model(config, checkpoint, request)
    warnings += more + notes
    load, longest = _load(model, config, request, warnings)
    found = layouts(model, request.cluster, load)
    if not any(layout.fits for layout in found) and request.max_model_len is None:
        shorter = shorter_length(model, request.cluster, load)
        if shorter:
            warnings.append(
                f"the model's whole context of {load.max_model_len:,} tokens fits no layout of {request.cluster};"
                f" planned with --max-model-len {shorter}"
            )
            load = replace(load, max_model_len=shorter)
            found = layouts(model, request.cluster, load)
    choice = choose(model, found, request.cluster, load)
    warnings = _quantise_first(choice, request) + warnings
    warnings += traps(model, choice.layout, request.cluster, load, longest, request.dtype)
    name = str(request.path if request.path.is_dir() else request.path.parent)
    extra = Extra(name, request.kv_dtype, request.dtype)
    return {
        "schema": 1,
        "command": "plan",
        "model": _model_json(model, config, checkpoint, longest),
        "cluster": _cluster_json(request.cluster),
        "load": {
            "max_model_len": load.max_model_len,
            "concurrency": load.concurrency,
            "gpu_memory_utilization": load.utilization,
            "max_num_batched_tokens": load.batched_tokens,
            "kv_cache_dtype": request.kv_dtype,
        },
        "assumptions": _assumptions(model, choice, found, request, load),
        "layouts": [_layout_json(layout) for layout in found],
        "recommended": _recommended(choice, load, request, extra),
        "commands": commands(choice.layout, request.cluster, load, extra) if choice.layout else [],
        "warnings": list(dict.fromkeys(warnings)),
    }


def _with_side_files(config: ModelConfig, folder: Path) -> tuple[ModelConfig, list[str]]:
    """Quantisation that stands in a file of its own: ModelOpt's and older AWQ/GPTQ exports."""
    if config.part("quantization_config") or config.part("compression_config"):
        return config, []
    for name, method in (("hf_quant_config.json", "modelopt"), ("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        if (folder / name).is_file() and config.path.name == "config.json":
            try:
                part = read_json(folder / name, 2**22)
            except ConfigError as error:
                return config, [f"{error}; it is left out"]
            part = {"quant_method": method, **part}
            outer = {**config.outer, "quantization_config": part}
            text = outer if config.text is config.outer else config.text
            return replace(config, outer=outer, text=text), [f"quantisation read from {name}"]
    return config, []


def _model(config: ModelConfig, checkpoint: Checkpoint | None, request: Request) -> tuple[Model, list[str]]:
    decoder = open_decoder(config)
    inventory = build(decoder)
    stored, said = dtype_of(decoder.config)
    quantisation = quantisation_of(decoder.config, DTYPE_BYTES[stored])
    counted = sum(stored_bytes(w, quantisation, DTYPE_BYTES[stored]) for w in (*inventory.all(), *inventory.copies))
    total = checkpoint.total_bytes if checkpoint else round(counted)
    run = _run_dtype(stored, request.dtype)
    kv = 1.0 if request.kv_dtype == "auto" and quantisation.kv_cache_fp8 else KV_BYTES.get(request.kv_dtype, DTYPE_BYTES[run])
    caches = layer_caches(decoder, kv, DTYPE_BYTES[run])
    notes = [*inventory.notes, *quantisation.notes, *(checkpoint.notes if checkpoint else ())]
    if not decoder.known:
        notes.insert(0, f"model type {decoder.config.model_type!r} is not known: parameters are counted as for a Llama decoder"
                        " of this shape, the KV cache from its heads; weights are exact only where files are there")
    if not said:
        notes.append(f"the config names no dtype: {stored} is assumed")
    if run != stored:
        notes.append(f"the checkpoint is {stored}, vLLM runs it in {run}" + ("" if request.dtype != "auto" else " (its `auto`)"))
    if quantisation.kv_cache_fp8 and request.kv_dtype == "auto":
        notes.append("the checkpoint brings FP8 KV cache scales: an FP8 cache (1 byte a number) is counted")
    if isinstance(config.outer.get("auto_map"), dict):
        notes.append("the config names code of its own (auto_map): vLLM may ask for --trust-remote-code, which runs that code")
    scale = total / counted if counted and checkpoint else 1.0
    if checkpoint and abs(scale - 1) > 0.02:
        notes.append(f"the files hold {total / GIB:.1f} GiB, the config counts {counted / GIB:.1f} GiB: the files are believed")
    if inventory.unloaded:
        spare = sum(stored_bytes(w, quantisation, DTYPE_BYTES[stored]) for w in inventory.unloaded)
        notes.append(f"{spare * scale / GIB:.1f} GiB of the checkpoint are multi-token prediction layers, not loaded without"
                     " --speculative-config")
    return Model(decoder, inventory, quantisation, DTYPE_BYTES[run], caches, scale, total), notes


def _run_dtype(stored: str, asked: str) -> str:
    """What vLLM computes in: float32 checkpoints run in bfloat16 unless told otherwise."""
    if asked != "auto":
        return asked
    return "bfloat16" if stored not in ("float16", "half", "bfloat16") else stored


def _load(model: Model, config: ModelConfig, request: Request, warnings: list[str]) -> tuple[Load, int]:
    longest = _longest(model.decoder.config)
    length = request.max_model_len or longest
    if not length:
        length = DEFAULT_LENGTH
        warnings.append(f"the config names no context length: --max-model-len {length} is assumed")
    batched = request.batched_tokens or request.cluster.gpu.batched_tokens
    return Load(length, request.concurrency, request.utilization, batched), longest


def _longest(config: ModelConfig) -> int:
    """The context the model was made for; 0 where the config does not say."""
    longest = config.number("max_position_embeddings", 0) or config.number("model_max_length", 0)
    rope = config.part("rope_scaling") or config.part("rope_parameters")
    kind, factor, start = rope.get("rope_type") or rope.get("type"), rope.get("factor"), rope.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(factor, (int, float)) and isinstance(start, int) and 1 <= factor <= 4096 and start > 0:
        return max(longest, int(start * factor))
    return longest


def _parameters(model: Model, checkpoint: Checkpoint | None) -> int:
    if checkpoint and checkpoint.parameters and not model.decoder.known:
        return checkpoint.parameters
    return model.inventory.parameters


def _model_json(model: Model, config: ModelConfig, checkpoint: Checkpoint | None, longest: int) -> dict[str, Any]:
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


def _cluster_json(cluster: Cluster) -> dict[str, Any]:
    return {
        "gpu": cluster.gpu.name,
        "gpus_per_node": cluster.per_node,
        "nodes": cluster.nodes,
        "memory_bytes_per_gpu": cluster.gpu.usable_bytes,
        "nvlink_domain": cluster.gpu.domain,
        "assumed": cluster.assumed,
    }


def _layout_json(layout: Layout) -> dict[str, Any]:
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


def _recommended(choice: Choice, load: Load, request: Request, extra: Extra) -> dict[str, Any]:
    layout = choice.layout
    base: dict[str, Any] = _layout_json(layout) if layout else {"tp": None, "pp": None, "gpus": None, "fits": False}
    base.update(max_model_len=load.max_model_len, why="; ".join(choice.reasons), reasons=list(choice.reasons))
    if choice.quantised:
        name, smaller = choice.quantised
        quantised = replace(extra, quantization="fp8") if name == "fp8" else extra
        one = replace(request.cluster, nodes=1)
        line = commands(smaller, one, load, quantised)[0]
        base["quantise_first"] = {"quantization": name, **_layout_json(smaller), "command": line if name == "fp8" else None}
    return base


def _quantise_first(choice: Choice, request: Request) -> list[str]:
    if not choice.quantised:
        return []
    name, layout = choice.quantised
    what = "FP8 (`--quantization fp8`, or a published FP8 checkpoint)" if name == "fp8" else "a 4-bit (AWQ or GPTQ) checkpoint"
    before = "quantise before spreading over nodes" if choice.layout else "as it is, nothing fits"
    return [f"{before}: {what} fits on one node of {request.cluster.per_node} {request.cluster.gpu.name}, TP {layout.tp}: {layout.why}"]


def _assumptions(model: Model, choice: Choice, found: list[Layout], request: Request, load: Load) -> list[str]:
    layout = choice.layout or (found[-1] if found else None)
    gpu = request.cluster.gpu
    out = []
    if request.cluster.assumed:
        out.append("GPUs: none named, one node of 8 H100 is assumed (--gpus H100x8)")
    out.append(f"GPU memory: {gpu.usable_bytes / GIB:.1f} GiB of {gpu.memory_mib} MiB, {CUDA_HELD_MIB} MiB are the driver's")
    if layout:
        spare = layout.overhead
        out += [
            f"activations: {spare.activations / GIB:.1f} GiB a GPU at the peak of a batch of {load.batched_tokens} tokens",
            f"CUDA context and workspaces {spare.context / GIB:.1f} GiB, NCCL buffers {spare.communication / GIB:.1f} GiB,"
            f" CUDA graphs {spare.graphs / GIB:.1f} GiB",
        ]
    out.append(f"load: {load.concurrency} request(s) of {load.max_model_len} tokens at once, shared out over the replicas")
    return out
