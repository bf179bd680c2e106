"""What a model's weights consist of: matrices and vectors, each with how it is split over GPUs.

An `Inventory` is pure arithmetic over a config: the parameter count, the bytes on disk and the bytes of one GPU
in any layout all come from the same list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

TP, KV, COPY = "tp", "kv", "copy"


@dataclass(frozen=True)
class Weight:
    """`count` matrices of rows x cols (a vector has cols 1)."""

    name: str  # as in the checkpoint, without ".weight": model.layers.3.self_attn.q_proj
    rows: int  # output features
    cols: int = 1  # input features
    count: int = 1  # experts
    linear: bool = False  # quantisation may apply
    split: str = COPY  # tp: divided by TP; kv: divided by TP, at least one KV head each; copy: whole on every GPU
    dtype: str | None = None  # stored in this type whatever the model's is
    experts: bool = False  # a routed expert: divided over TP or expert parallel ranks

    @property
    def numel(self) -> int:
        return self.rows * self.cols * self.count


@dataclass(frozen=True)
class Inventory:
    """The weights by where they live in a pipeline."""

    first: list[Weight] = field(default_factory=list)  # embeddings: first stage
    layers: list[list[Weight]] = field(default_factory=list)
    last: list[Weight] = field(default_factory=list)  # final norm, lm_head: last stage
    tied: bool = False  # lm_head is the embedding: the last stage holds a copy of it
    encoder: list[Weight] = field(default_factory=list)  # vision or audio tower and projector
    unloaded: list[Weight] = field(default_factory=list)  # in the checkpoint, not loaded: multi-token prediction
    notes: tuple[str, ...] = ()  # what could not be counted, or was assumed
    copies: list[Weight] = field(default_factory=list)  # stored twice in the checkpoint: bytes, no parameters

    def all(self) -> Iterable[Weight]:
        """Every weight once; without the copies."""
        yield from self.first
        for layer in self.layers:
            yield from layer
        yield from self.last
        yield from self.encoder
        yield from self.unloaded

    @property
    def parameters(self) -> int:
        return sum(weight.numel for weight in self.all())

    def active_parameters(self, experts: int, per_token: int) -> int:
        """Parameters one token passes through: routed experts count per_token of experts."""
        total = 0
        for weight in (*self.first, *(w for layer in self.layers for w in layer), *self.last):
            total += weight.numel * per_token // experts if weight.experts and experts else weight.numel
        return total


def linear(name: str, rows: int, cols: int, *, split: str = TP, bias: bool = False, count: int = 1) -> list[Weight]:
    """A projection and, if it has one, its bias."""
    out = [Weight(name, rows, cols, count, linear=True, split=split)]
    if bias:
        out.append(Weight(name + ".bias", rows, 1, count, split=split))
    return out


def norm(name: str, size: int, bias: bool = False) -> list[Weight]:
    return [Weight(name, size), *([Weight(name + ".bias", size)] if bias else [])]


def as_experts(weights: Iterable[Weight], count: int) -> list[Weight]:
    """`count` copies of an expert's weights."""
    return [replace(weight, count=count, experts=True, split=TP) for weight in weights]
