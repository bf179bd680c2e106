"""What a measured bandwidth means for an engine: how much of a decode step and of a prefill is communication, TP across nodes against PP.

Under tensor parallelism every layer has two all-reduces (after attention, after the MLP) of tokens x hidden size; a pipeline boundary is crossed
once a forward by the hidden states and, in vLLM, the residual. Communication is taken as not hidden behind computing, as in vLLM by default.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncdiag.bandwidth.sweep import Row

ALL_REDUCES_A_LAYER = 2
PIPELINE_TENSORS = 2
PREFILL_EFFICIENCY = 0.6
"""Of the measured matrix product's rate that a prefill reaches."""
DECODE_EFFICIENCY = 0.8
"""Of the measured copy bandwidth that reading weights and KV cache reaches."""


@dataclass(frozen=True)
class Shape:
    """The model, as far as it matters here."""

    layers: int
    hidden: int
    parameters: int
    active_parameters: int
    """Those one token goes through (mixture of experts); else all."""
    weights_bytes: int
    activation_bytes: int = 2
    """Bytes of one activation value."""


@dataclass(frozen=True)
class Load:
    batch: int = 32
    """Sequences in a decode step, one token each."""
    prefill_tokens: int = 8192
    """Tokens in a prefill batch."""


@dataclass(frozen=True)
class Machine:
    """One GPU, as measured in this run; None: not measured (CPU ranks)."""

    memory_gbytes_s: float | None
    bf16_tflops: float | None


@dataclass(frozen=True)
class Forward:
    """One forward of one layout. Times in seconds."""

    layout: str
    what: str
    """`decode step` or `prefill`."""
    tokens: int
    all_reduces: int
    all_reduce_bytes: int
    """Of one all-reduce."""
    sends: int
    send_bytes: int
    communication_s: float
    compute_s: float | None

    @property
    def share(self) -> float | None:
        if self.compute_s is None:
            return None
        return self.communication_s / (self.communication_s + self.compute_s)

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "share": self.share,
            "bytes": self.all_reduces * self.all_reduce_bytes + self.sends * self.send_bytes,
        }


class Curve:
    """Time of one operation by size, from measured rows: straight between them in logarithms, the last bandwidth beyond."""

    def __init__(self, rows: Iterable[Row], op: str) -> None:
        best: dict[int, float] = {}
        for row in rows:
            if row.op == op:
                best[row.size_bytes] = min(row.median_s, best.get(row.size_bytes, math.inf))
        self.points = sorted(best.items())

    def __bool__(self) -> bool:
        return bool(self.points)

    def __call__(self, size: float) -> float:
        sizes = [point[0] for point in self.points]
        index = bisect.bisect_left(sizes, size)
        if index == 0:
            return self.points[0][1]
        if index == len(sizes):
            return self.points[-1][1] * size / sizes[-1]
        (low, fast), (high, slow) = self.points[index - 1], self.points[index]
        weight = math.log(size / low) / math.log(high / low)
        return math.exp(math.log(fast) * (1 - weight) + math.log(slow) * weight)


def forwards(
    shape: Shape,
    load: Load,
    across: Curve,
    send: Curve,
    ranks: int,
    nodes: int,
    machine: Machine,
    inside: Curve | None = None,
) -> list[Forward]:
    """Decode and prefill: TP over all `ranks`; with several nodes also PP over the nodes, TP within each (`inside`: measured there, if it was)."""
    found = [
        _forward("TP", f"TP={ranks}", what, tokens, shape, load, across, send, ranks, 1, machine)
        for what, tokens in _steps(load)
    ]
    if nodes > 1 and ranks % nodes == 0:
        within = ranks // nodes
        curve = inside if inside else None
        if within == 1 or curve:
            label = f"PP={nodes}" + (f" x TP={within}" if within > 1 else "")
            found += [
                _forward("PP", label, what, tokens, shape, load, curve, send, within, nodes, machine)
                for what, tokens in _steps(load)
            ]
    return found


def _steps(load: Load) -> Sequence[tuple[str, int]]:
    return ("decode step", load.batch), ("prefill", load.prefill_tokens)


def _forward(
    kind: str,
    label: str,
    what: str,
    tokens: int,
    shape: Shape,
    load: Load,
    reduce: Curve | None,
    send: Curve,
    tp: int,
    stages: int,
    machine: Machine,
) -> Forward:
    size = tokens * shape.hidden * shape.activation_bytes
    reduces = ALL_REDUCES_A_LAYER * shape.layers if tp > 1 else 0
    sends = (stages - 1) * PIPELINE_TENSORS if stages > 1 else 0
    sliced = size // tp  # vLLM sends each rank's slice and gathers it within the node
    time_s = (reduces * reduce(size) if reduces and reduce else 0.0) + (sends * send(sliced) if sends else 0.0)
    return Forward(
        label, what, tokens, reduces, size, sends, sliced, time_s, _compute(what, tokens, shape, tp, machine)
    )


def _compute(what: str, tokens: int, shape: Shape, tp: int, machine: Machine) -> float | None:
    """Seconds of one forward through all stages, one after another: a pipeline shortens nothing for one batch."""
    if machine.memory_gbytes_s is None or machine.bf16_tflops is None:
        return None
    reading = shape.weights_bytes / tp / (machine.memory_gbytes_s * 1e9 * DECODE_EFFICIENCY)
    if what == "decode step":
        return reading
    return max(reading, 2 * shape.active_parameters * tokens / tp / (machine.bf16_tflops * 1e12 * PREFILL_EFFICIENCY))
