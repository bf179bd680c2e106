"""What would have to change for a model to fit that does not: each change is computed and fits, the smallest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ncdiag.nodeset import counted
from ncdiag.sizing.gpus import SERVER, Cluster
from ncdiag.sizing.layouts import Layout, Load, Model, layouts
from ncdiag.sizing.quantise import quantised_copies
from ncdiag.sizing.recommend import rank, shorter_length

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of nodes that are tried."""


@dataclass(frozen=True)
class Change:
    """One change that makes the model fit."""

    words: str
    layout: Layout

    def as_dict(self) -> dict[str, Any]:
        one = self.layout
        keys = ("tp", "pp", "dp", "gpus", "replicas", "why")
        return {"change": self.words, **{key: getattr(one, key) for key in keys}}


def changes(model: Model, cluster: Cluster, load: Load, with_fp8_cache: Callable[[], Model] | None) -> list[Change]:
    """Settings first, then a smaller copy of the model, then more GPUs. `with_fp8_cache`: the model with such a cache, where it has none and the GPUs have FP8."""
    found = [
        *_shorter(model, cluster, load),
        *_fewer_requests(model, cluster, load),
        *_smaller_cache(with_fp8_cache, cluster, load),
        *_quantised(model, cluster, load),
    ]
    more = _more_gpus(model, cluster, load)
    return [*found, more] if more is not None else found


def _best(model: Model, cluster: Cluster, load: Load) -> Layout | None:
    fitting = (layout for layout in layouts(model, cluster, load) if layout.fits)
    return min(fitting, key=lambda layout: rank(layout, cluster), default=None)


def _shorter(model: Model, cluster: Cluster, load: Load) -> Iterator[Change]:
    length = shorter_length(model, cluster, load)
    layout = _best(model, cluster, replace(load, max_model_len=length)) if length else None
    if layout is not None:
        yield Change(f"--max-model-len {length} in place of {load.max_model_len}", layout)


def _fewer_requests(model: Model, cluster: Cluster, load: Load) -> Iterator[Change]:
    """The most requests at once that some layout holds."""
    low, high = 0, load.concurrency
    while high - low > 1:
        middle = (low + high) // 2
        fits = _best(model, cluster, replace(load, concurrency=middle)) is not None
        low, high = (middle, high) if fits else (low, middle)
    layout = _best(model, cluster, replace(load, concurrency=low)) if low else None
    if layout is not None:
        yield Change(f"{counted(low, 'request')} of that length at once in place of {load.concurrency}", layout)


def _smaller_cache(with_fp8_cache: Callable[[], Model] | None, cluster: Cluster, load: Load) -> Iterator[Change]:
    layout = _best(with_fp8_cache(), cluster, load) if with_fp8_cache is not None else None
    if layout is not None:
        yield Change("--kv-cache-dtype fp8", layout)


def _quantised(model: Model, cluster: Cluster, load: Load) -> Iterator[Change]:
    words = {"fp8": "an FP8 checkpoint, or --quantization fp8", "4-bit": "a 4-bit checkpoint (AWQ or GPTQ)"}
    for name, copy in quantised_copies(model.quantisation, cluster.gpu.fp8):
        layout = _best(replace(model, quantisation=copy), cluster, load)
        if layout is not None:
            yield Change(words[name], layout)
            return


def _more_gpus(model: Model, cluster: Cluster, load: Load) -> Change | None:
    """The fewest GPUs of the same kind: a fuller server first, then more nodes of it."""
    sizes = [size for size in (1, 2, 4, SERVER) if size > cluster.per_node]
    larger = [replace(cluster, per_node=size) for size in sizes if cluster.nodes == 1]
    node = larger[-1] if larger else cluster
    for bigger in [*larger, *(replace(node, nodes=count) for count in NODES if count > cluster.nodes)]:
        layout = _best(model, bigger, load)
        if layout is not None:
            kind = f"{bigger.gpu.name}x{bigger.per_node}" + (f"*{bigger.nodes}" if bigger.nodes > 1 else "")
            return Change(f"more GPUs (--gpus {kind})", layout)
    return None
