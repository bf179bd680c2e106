"""What `quantization_config` says, format by format: the bytes of a weight with its scales and zero points.

Scales, zero points and indices count: a 4-bit checkpoint is 4.15 to 4.6 bits a parameter. Sources: the layouts
written by AutoGPTQ, AutoAWQ, compressed-tensors, bitsandbytes, ModelOpt, Quark, and by DeepSeek's and OpenAI's own
files, as vLLM reads them (`model_executor/layers/quantization/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from ncdiag.sizing.config import ModelConfig, shown
from ncdiag.sizing.quantise import Quantisation
from ncdiag.sizing.weights import Weight

BITS, GROUPS = ("bits", "w_bit", "num_bits"), ("group_size", "q_group_size")
MAX_BITS, MAX_GROUP = 16, 2**20


def quantisation_of(config: ModelConfig, dtype_bytes: float) -> Quantisation:
    """What `quantization_config` (or `compression_config`) says; `none` without one."""
    part = config.part("quantization_config") or config.part("compression_config")
    if not part:
        return Quantisation("none", 8 * dtype_bytes, notes=tuple(_no_object(config)))
    found = _read(part, dtype_bytes)
    return replace(found, notes=(*found.notes, *_odd_numbers(part, found.bits)))


def _no_object(config: ModelConfig) -> Iterator[str]:
    for key in ("quantization_config", "compression_config"):
        value = config.text.get(key) or config.outer.get(key)
        if value and not isinstance(value, dict):
            yield f"{key} is {shown(value)}, not an object: weights are counted unquantised"


def _odd_numbers(part: Mapping[str, Any], bits: float) -> Iterator[str]:
    """Numbers that no format has, for which its usual ones stand in, here and in the groups of compressed-tensors."""
    for key, value in part.items():
        if key in BITS and value is not None and not _is_whole(value, 1, MAX_BITS):
            yield f"{key} of the quantization is {shown(value)}, and no format has that: counted as {bits:g} bits"
        elif key in GROUPS and value is not None and (not _is_whole(value, -1, MAX_GROUP) or value == 0):
            yield f"{key} of the quantization is {shown(value)}, and no format has that: the usual size is taken"
        elif key == "weight_block_size" and value is not None and not _is_block(value):
            yield f"{key} of the quantization is {shown(value)}; two whole numbers are expected: one scale a matrix is counted"
        elif isinstance(value, dict) and key in ("config_groups", "weights", "quantization", "group_0"):
            yield from _odd_numbers(value, bits)


def _is_block(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and len(value) == 2 and all(_is_whole(number, 1, MAX_GROUP) for number in value)


def _is_whole(value: Any, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _read(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    method = part.get("quant_method") or part.get("quantization_method") or ""
    method = str(method).lower().replace("_", "-") if isinstance(method, str) else ""
    if not method and isinstance(part.get("quant_algo"), str):
        method = "modelopt"
    reader = READERS.get(method)
    if reader is None:
        return _unknown(part, method, dtype_bytes)
    return reader(part, dtype_bytes)


def _unknown(part: Mapping[str, Any], method: str, dtype_bytes: float) -> Quantisation:
    bits = _int(part, "bits", 0) or _int(part, "w_bit", 0)
    if not bits:
        note = f"quantization method {method or '(unnamed)'} is unknown: weights are counted unquantised"
        return Quantisation(method or "unknown", 8 * dtype_bytes, notes=(note,))
    note = f"quantization method {method or '(unnamed)'} is unknown: counted as {bits} bits plus 16-bit scales per 128"
    return Quantisation(
        method or "unknown", bits, lambda w: w.rows * w.cols * (bits / 8 + 2 / 128), _ignored(part), notes=(note,)
    )


def _fp8(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    block = part.get("weight_block_size")
    static = part.get("activation_scheme") == "static"

    def cost(weight: Weight) -> float:
        if _is_block(block):
            return weight.rows * weight.cols + 4 * _ceil(weight.rows, block[0]) * _ceil(weight.cols, block[1])
        return weight.rows * weight.cols + 4 + (4 if static else 0)

    step = block[0] if _is_block(block) else 1
    return Quantisation("fp8", 8, cost, _ignored(part), block=step)


def _gptq(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    bits, group = _int(part, "bits", 4), _int(part, "group_size", 128, signed=True)

    def cost(weight: Weight) -> float:
        groups = _ceil(weight.cols, group) if group > 0 else 1
        packed = 4 * (_ceil(weight.cols * bits, 32) * weight.rows + groups * _ceil(weight.rows * bits, 32))
        return packed + 2 * groups * weight.rows + 4 * weight.cols  # + scales + g_idx

    return Quantisation("gptq", bits, cost, _ignored(part), block=max(group, 1))


def _awq(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    bits, group = _int(part, "bits", 0) or _int(part, "w_bit", 4), _int(part, "group_size", 0, signed=True)
    group = group or _int(part, "q_group_size", 128, signed=True)

    def cost(weight: Weight) -> float:
        groups = _ceil(weight.cols, group) if group > 0 else 1
        return 4 * (weight.cols + groups) * _ceil(weight.rows * bits, 32) + 2 * groups * weight.rows

    return Quantisation("awq", bits, cost, _ignored(part), block=max(group, 1))


def _mxfp4(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    """OpenAI's GPT-OSS files: only the experts, one 8-bit scale per 32 weights."""
    return Quantisation("mxfp4", 4, lambda w: w.rows * (w.cols / 2 + _ceil(w.cols, 32)), only_experts=True)


def _bitsandbytes(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    ignore = (*_ignored(part), "lm_head")
    if part.get("load_in_8bit") or part.get("_load_in_8bit"):
        return Quantisation("bitsandbytes", 8, lambda w: w.rows * (w.cols + 4) + 1, ignore)
    double = bool(part.get("bnb_4bit_use_double_quant"))

    def cost(weight: Weight) -> float:
        numel = weight.rows * weight.cols
        blocks = _ceil(numel, 64)
        absmax = blocks + 4 * _ceil(blocks, 256) + 4 * 256 if double else 4 * blocks
        return _ceil(numel, 2) + absmax + 4 * 16  # + quant_map; the small quant_state is left out

    return Quantisation("bitsandbytes", 4, cost, ignore)


def _compressed(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    """compressed-tensors: the first group's scheme stands for all."""
    groups = part.get("config_groups")
    first = next((g for g in groups.values() if isinstance(g, dict)), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights") if isinstance(first.get("weights"), dict) else {}
    if not weights:
        return _unknown(part, "compressed-tensors", dtype_bytes)
    bits, group = _int(weights, "num_bits", 8), _int(weights, "group_size", 0, signed=True)
    strategy, kind = weights.get("strategy"), weights.get("type")
    block = weights.get("block_structure")
    layout = first.get("format") or part.get("format")
    static = isinstance(first.get("input_activations"), dict) and not first["input_activations"].get("dynamic", False)
    symmetric = weights.get("symmetric", True) is not False
    packed = bits < 8 or layout == "pack-quantized"

    def cost(weight: Weight) -> float:
        numel = weight.rows * weight.cols
        if kind == "float" and bits == 4:  # NVFP4 or MXFP4: one 8-bit scale a group
            return numel / 2 + weight.rows * _ceil(weight.cols, group or 16) + (4 if (group or 16) == 16 else 0)
        body = 4 * weight.rows * _ceil(weight.cols * bits, 32) + 16 if packed else numel * bits / 8
        scales: float = 1
        if strategy == "block" and isinstance(block, list) and len(block) == 2:
            scales = _ceil(weight.rows, _positive(block[0])) * _ceil(weight.cols, _positive(block[1]))
        elif strategy == "group" or (group > 0 and strategy is None):
            scales = weight.rows * _ceil(weight.cols, max(group, 1))
        elif strategy in ("channel", None):
            scales = weight.rows
        zeros = 0 if symmetric else (scales * bits / 8 if packed else scales)
        return body + scales * dtype_bytes + zeros + (dtype_bytes if static else 0)

    cache = part.get("kv_cache_scheme")
    fp8_cache = isinstance(cache, dict) and cache.get("num_bits") == 8
    targets = " ".join(str(target) for target in first.get("targets", []) if isinstance(target, str))
    only = "expert" in targets and "Linear" not in targets
    return Quantisation("compressed-tensors", bits, cost, _ignored(part), only, fp8_cache)


def _modelopt(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    nested = part.get("quantization")
    inner: Mapping[str, Any] = nested if isinstance(nested, dict) else part
    algo = str(inner.get("quant_algo") or part.get("quant_algo") or "").upper()
    group = _int(inner, "group_size", 16) or 16
    cache = str(inner.get("kv_cache_quant_algo") or "").upper() == "FP8" or isinstance(
        part.get("kv_cache_scheme"), dict
    )
    ignore = (*_ignored(inner), *_ignored(part))
    if "FP4" in algo:
        cost: Callable[[Weight], float] = lambda w: w.rows * (w.cols / 2 + _ceil(w.cols, group)) + 8
        return Quantisation("modelopt", 4, cost, ignore, kv_cache_fp8=cache)
    if "FP8" in algo:
        return Quantisation("modelopt", 8, lambda w: w.rows * w.cols + 8, ignore, kv_cache_fp8=cache)
    return _unknown(part, f"modelopt {algo}".strip(), dtype_bytes)


def _quark(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    whole = part.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, dict) and isinstance(whole.get("weight"), dict) else {}
    kind = str(weight.get("dtype", "")) if isinstance(weight, dict) else ""
    ignore = (
        tuple(name for name in part.get("exclude", []) if isinstance(name, str))
        if isinstance(part.get("exclude"), list)
        else ()
    )
    if "fp4" in kind:
        return Quantisation("quark", 4, lambda w: w.rows * (w.cols / 2 + _ceil(w.cols, 32)), ignore)
    if "fp8" in kind:
        return Quantisation("quark", 8, lambda w: w.rows * w.cols + 8, ignore)
    return _unknown(part, f"quark {kind}".strip(), dtype_bytes)


def _fbgemm(part: Mapping[str, Any], dtype_bytes: float) -> Quantisation:
    return Quantisation("fbgemm_fp8", 8, lambda w: w.rows * (w.cols + 4), _ignored(part))


READERS: Mapping[str, Callable[[Mapping[str, Any], float], Quantisation]] = {
    "fp8": _fp8,
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "gptqmodel": _gptq,
    "awq": _awq,
    "awq-marlin": _awq,
    "mxfp4": _mxfp4,
    "gpt-oss-mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "sparseml": _compressed,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "quark": _quark,
    "fbgemm-fp8": _fbgemm,
}


def _ignored(part: Mapping[str, Any]) -> tuple[str, ...]:
    """Names or patterns of layers left as they are. lm_head stays too unless the config says otherwise."""
    names: list[str] = []
    for key in ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules"):
        value = part.get(key)
        names += [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    if part.get("lm_head") is not True:
        names.append("lm_head")
    return tuple(dict.fromkeys(names))


def _int(part: Mapping[str, Any], key: str, default: int, signed: bool = False) -> int:
    value = part.get(key)
    return value if _is_whole(value, -1 if signed else 1, MAX_BITS if key in BITS else MAX_GROUP) else default


def _positive(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _ceil(number: int, step: int) -> int:
    return -(-number // step)
