"""From a config and a cluster to the plan: the dict that `ncdiag plan --format json` prints.

Keys: schema, model, cluster, load, assumptions, layouts, recommended, commands, warnings. All bytes are whole-model
figures unless the key says `_per_gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ncdiag.sizing.cache import layer_caches
from ncdiag.sizing.checkpoint import Checkpoint, read_checkpoint
from ncdiag.sizing.commands import Extra, commands
from ncdiag.sizing.config import ConfigError, ModelConfig, load_config, read_json
from ncdiag.sizing.decoder import build, open_decoder, uneven
from ncdiag.sizing.families import family_of
from ncdiag.sizing.formats import quantisation_of
from ncdiag.sizing.gpus import Cluster
from ncdiag.sizing.layouts import Load, Model, impossible, layouts
from ncdiag.sizing.memory import GIB
from ncdiag.sizing.partial import partial_plan
from ncdiag.sizing.quantise import DTYPE_BYTES, dtype_of, stored_bytes
from ncdiag.sizing.recommend import Choice, choose, shorter_length
from ncdiag.sizing.result import assumptions, cluster_json, layout_json, load_json, model_json, recommended
from ncdiag.sizing.traps import traps
from ncdiag.sizing.way_out import changes

DEFAULT_LENGTH = 4096
CORE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
KV_BYTES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "bfloat16": 2.0, "float16": 2.0}


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
    folder = config.path.parent
    checkpoint, warnings = read_checkpoint(folder) if config.path.name == "config.json" else (None, [])
    config, more = _with_side_files(config, folder)
    frame: dict[str, Any] = {"schema": 1, "command": "plan"}
    try:
        model, notes = build_model(config, checkpoint, request)
    except ConfigError as error:
        if family_of(config.model_type)[0] is not None and checkpoint is None:
            raise
        plan = partial_plan(config, checkpoint, request.cluster, request.utilization, str(error))
        plan["warnings"] += warnings + more
        asked = Load(request.max_model_len or 0, request.concurrency, request.utilization, 0)
        return {
            **frame,
            **plan,
            "cluster": cluster_json(request.cluster),
            "load": load_json(asked, request.kv_dtype),
            "assumptions": [],
        }
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
    would_fit = [] if choice.layout else changes(model, request.cluster, load, _fp8_cache(config, checkpoint, request))
    warnings = _quantise_first(choice, request) + warnings
    warnings += impossible(model, request.cluster)
    warnings += traps(model, choice.layout, request.cluster, load, longest, request.dtype)
    name = str(folder.resolve() if str(folder) == "." else folder)
    extra = Extra(name, request.kv_dtype, request.dtype, longer=bool(longest) and load.max_model_len > longest)
    return {
        **frame,
        "model": model_json(model, config, checkpoint, longest),
        "cluster": cluster_json(request.cluster),
        "load": load_json(load, request.kv_dtype),
        "assumptions": assumptions(model, choice, found, request.cluster, load),
        "layouts": [layout_json(layout) for layout in found],
        "recommended": recommended(choice, load, request.cluster, extra, would_fit),
        "commands": commands(choice.layout, request.cluster, load, extra) if choice.layout else [],
        "warnings": list(dict.fromkeys(warnings)),
    }


def _with_side_files(config: ModelConfig, folder: Path) -> tuple[ModelConfig, list[str]]:
    """Quantisation that stands in a file of its own: ModelOpt's and older AWQ/GPTQ exports."""
    if config.part("quantization_config") or config.part("compression_config"):
        return config, []
    for name, method in (
        ("hf_quant_config.json", "modelopt"),
        ("quantize_config.json", "gptq"),
        ("quant_config.json", "awq"),
    ):
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


def build_model(config: ModelConfig, checkpoint: Checkpoint | None, request: Request) -> tuple[Model, list[str]]:
    """The counted model, and what had to be assumed for it. Raises ConfigError when the config lacks a size."""
    decoder = open_decoder(config)
    inventory = build(decoder)
    stored, doubt = dtype_of(decoder.config)
    quantisation = quantisation_of(decoder.config, DTYPE_BYTES[stored])
    counted = sum(stored_bytes(w, quantisation, DTYPE_BYTES[stored]) for w in (*inventory.all(), *inventory.copies))
    total = checkpoint.total_bytes if checkpoint else round(counted)
    run = _run_dtype(stored, request.dtype)
    calibrated = request.kv_dtype == "auto" and quantisation.kv_cache_fp8
    kv = 1.0 if calibrated else KV_BYTES.get(request.kv_dtype, DTYPE_BYTES[run])
    caches = layer_caches(decoder, kv, DTYPE_BYTES[run])
    notes = [*inventory.notes, *quantisation.notes, *(checkpoint.notes if checkpoint else ())]
    if not decoder.known:
        notes.insert(
            0,
            f"model type {decoder.config.model_type!r} is not known: parameters are counted as for a Llama decoder"
            " of this shape, the KV cache from its heads; weights are exact only where files are there",
        )
    taken = [key for key in CORE if key in decoder.config.defaults and not decoder.config.says(key)]
    if taken:
        values = ", ".join(f"{key} {decoder.config.defaults[key]}" for key in taken)
        notes.append(f"the config leaves out what transformers then sets for {decoder.config.model_type}: {values}")
    if decoder.config.flag("is_encoder_decoder"):
        notes.append("an encoder-decoder model: encoder and cross-attention are not counted")
    notes += [doubt] if doubt else []
    notes += uneven(decoder)
    if run != stored:
        notes.append(
            f"the checkpoint is {stored}, vLLM runs it in {run}" + ("" if request.dtype != "auto" else " (its `auto`)")
        )
    if calibrated:
        notes.append("the checkpoint brings FP8 KV cache scales: an FP8 cache (1 byte a number) is counted")
    if isinstance(config.outer.get("auto_map"), dict):
        notes.append(
            "the config names code of its own (auto_map): vLLM may ask for --trust-remote-code, which runs that code"
        )
    scale = total / counted if counted and checkpoint else 1.0
    if checkpoint and abs(scale - 1) > 0.02:
        notes.append(
            f"the files hold {total / GIB:.1f} GiB, the config counts {counted / GIB:.1f} GiB: the files are believed"
        )
    if inventory.unloaded:
        spare = sum(stored_bytes(w, quantisation, DTYPE_BYTES[stored]) for w in inventory.unloaded)
        notes.append(
            f"{spare * scale / GIB:.1f} GiB of the checkpoint are multi-token prediction layers, not loaded without"
            " --speculative-config"
        )
    return Model(decoder, inventory, quantisation, DTYPE_BYTES[run], caches, scale, total), notes


def _fp8_cache(config: ModelConfig, checkpoint: Checkpoint | None, request: Request) -> Callable[[], Model] | None:
    """The model with an FP8 cache; None where it has one, or the GPUs have no FP8."""
    if not request.cluster.gpu.fp8 or request.kv_dtype != "auto":
        return None
    return lambda: build_model(config, checkpoint, replace(request, kv_dtype="fp8"))[0]


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
    kind, factor, start = (
        rope.get("rope_type") or rope.get("type"),
        rope.get("factor"),
        rope.get("original_max_position_embeddings"),
    )
    if (
        kind == "yarn"
        and isinstance(factor, (int, float))
        and isinstance(start, int)
        and 1 <= factor <= 4096
        and start > 0
    ):
        return max(longest, int(start * factor))
    return longest


def _quantise_first(choice: Choice, request: Request) -> list[str]:
    if not (choice.quantised and choice.layout):
        return []
    name, layout = choice.quantised
    what = (
        "FP8 (`--quantization fp8`, or a published FP8 checkpoint)"
        if name == "fp8"
        else "a 4-bit (AWQ or GPTQ) checkpoint"
    )
    return [
        f"quantise before spreading over nodes: {what} fits on one node of {request.cluster.per_node} {request.cluster.gpu.name}, TP {layout.tp}: {layout.why}"
    ]
