"""Bytes of a weight as it is stored or held: its type, or the quantisation that covers it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ncdiag.sizing.config import ModelConfig, shown
from ncdiag.sizing.weights import Weight

DTYPE_BYTES: Mapping[str, float] = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "fp8": 1,
    "int8": 1,
    "uint8": 1,
}
MAX_PATTERN = 200  # an ignore pattern longer than this is not compiled


@dataclass(frozen=True)
class Quantisation:
    """How linear layers are stored. `cost` gives a quantised weight's bytes, all its scales included."""

    name: str  # none, fp8, gptq, awq, mxfp4, ...
    bits: float  # of one weight, without scales
    cost: Callable[[Weight], float] | None = None
    ignore: tuple[str, ...] = ()
    only_experts: bool = False
    kv_cache_fp8: bool = False  # the checkpoint brings scales for an FP8 KV cache
    block: int = 1  # a shard's rows and columns must be a multiple of this
    notes: tuple[str, ...] = field(default=())

    def covers(self, weight: Weight) -> bool:
        if self.cost is None or not weight.linear or weight.cols == 1:
            return False
        if self.only_experts:
            return weight.experts
        return not any(_matches(pattern, weight.name) for pattern in self.ignore)


def as_fp8() -> Quantisation:
    """FP8 made by the engine at load (`--quantization fp8`): one scale a matrix, lm_head left as it is."""
    return Quantisation("fp8", 8, lambda w: w.rows * w.cols + 4, ("lm_head",))


def as_int4() -> Quantisation:
    """A 4-bit checkpoint of the usual make: groups of 128, lm_head left as it is."""
    return Quantisation("awq", 4, lambda w: w.rows * w.cols * (0.5 + 2.5 / 128), ("lm_head",))


def quantised_copies(present: Quantisation, fp8: bool) -> Iterator[tuple[str, Quantisation]]:
    """Smaller ways to store a model that is not quantised yet, the largest first. `fp8`: the GPUs compute in FP8."""
    if present.cost is not None:
        return
    if fp8:
        yield "fp8", as_fp8()
    yield "4-bit", as_int4()


def stored_bytes(weight: Weight, quantisation: Quantisation, dtype_bytes: float) -> float:
    """Bytes of all copies of one weight."""
    if weight.dtype:
        return weight.numel * DTYPE_BYTES.get(weight.dtype, dtype_bytes)
    if quantisation.covers(weight) and quantisation.cost:
        return weight.count * quantisation.cost(weight)
    return weight.numel * dtype_bytes


def dtype_of(config: ModelConfig) -> tuple[str, str]:
    """(the checkpoint's type, a note where the config does not say it). bfloat16 is assumed there."""
    odd = ""
    for source in (config.text, config.outer):
        for key in ("dtype", "torch_dtype", "params_dtype"):
            name = source.get(key)
            if isinstance(name, str) and name.removeprefix("torch.") in DTYPE_BYTES:
                return name.removeprefix("torch."), ""
            if name not in (None, "auto") and not odd:
                odd = f"{key} is {shown(name)}, which is none of {', '.join(DTYPE_BYTES)}: bfloat16 is assumed"
    return "bfloat16", odd or "the config names no dtype: bfloat16 is assumed"


def _matches(pattern: str, name: str) -> bool:
    """`re:` is a regular expression; `*` a wildcard; else a whole part of the dotted name, as vLLM has it."""
    if pattern.startswith("re:") or "*" in pattern:
        return _search(pattern.removeprefix("re:") if pattern.startswith("re:") else _glob(pattern), name)
    short = pattern.removeprefix("language_model.").removesuffix(".weight")
    return name == short or name.startswith(short + ".") or f".{short}." in f".{name}."


def _glob(pattern: str) -> str:
    return ".*".join(re.escape(piece) for piece in pattern.removeprefix("model.language_model.").split("*"))


def _search(pattern: str, name: str) -> bool:
    if len(pattern) > MAX_PATTERN or re.search(r"[+*}]\)?[+*{]", pattern.replace(".*", "")):
        return False  # a nested repeat can take for ever
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False
