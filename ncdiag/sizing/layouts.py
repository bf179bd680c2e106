"""Which TP x PP (x DP) layouts a model can have on a cluster, what each GPU then holds, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ncdiag.nodeset import counted
from ncdiag.sizing.cache import LayerCache, capacity
from ncdiag.sizing.decoder import Decoder
from ncdiag.sizing.feedforward import expert_width
from ncdiag.sizing.gpus import Cluster
from ncdiag.sizing.memory import Overhead, overhead
from ncdiag.sizing.quantise import Quantisation, stored_bytes
from ncdiag.sizing.weights import COPY, KV, TP, Inventory, Weight

GIB = 2**30
MAX_TP = 1024
ASYNC_BATCHES = 2  # batches in flight with async scheduling, vLLM's default for a single pipeline stage


@dataclass(frozen=True)
class Load:
    """What is asked of the engine."""

    max_model_len: int
    concurrency: int  # requests of max_model_len at the same time, over all replicas
    utilization: float  # gpu-memory-utilization
    batched_tokens: int


@dataclass(frozen=True)
class Parts:
    """Bytes by how tensor parallelism splits them."""

    copy: float
    tp: float
    kv: float
    experts: float


@dataclass(frozen=True)
class Model:
    """Everything the layouts are computed from."""

    decoder: Decoder
    inventory: Inventory
    quantisation: Quantisation
    dtype_bytes: float
    caches: list[list[LayerCache]]
    scale: float  # bytes in the checkpoint's files / bytes counted; 1 without files
    weights_bytes: int  # of the whole checkpoint

    @cached_property
    def layers(self) -> list[Parts]:
        return [self._parts(layer) for layer in self.inventory.layers]

    @cached_property
    def first(self) -> Parts:
        return self._parts([*self.inventory.first, *self.inventory.encoder])

    @cached_property
    def last(self) -> Parts:
        return self._parts(self.inventory.last)

    @cached_property
    def embedding(self) -> Parts:
        return self._parts(self.inventory.first[:1])

    def _parts(self, weights: Iterable[Weight]) -> Parts:
        sums = {COPY: 0.0, TP: 0.0, KV: 0.0, "experts": 0.0}
        for weight in weights:
            key = "experts" if weight.experts else weight.split
            sums[key] += stored_bytes(weight, self.quantisation, self.dtype_bytes)
        return Parts(sums[COPY], sums[TP], sums[KV], sums["experts"])


@dataclass(frozen=True)
class Layout:
    """One way to spread one engine, and what a GPU of its fullest stage holds."""

    tp: int
    pp: int
    dp: int  # attention replicas inside the engine, experts spread over all; 1: plain
    ep: int  # ranks the experts are spread over whole; 1: each expert is cut by TP
    replicas: int  # engines of this layout the cluster has room for
    weights_bytes: int
    overhead: Overhead
    pool_bytes: int  # left for the KV cache; negative: short by that much
    kv_tokens: int  # of the whole engine
    requests: int  # of max_model_len each engine must hold at once
    fits: bool
    why: str
    nodes: int  # nodes one engine spans

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp


def layouts(model: Model, cluster: Cluster, load: Load) -> list[Layout]:
    """All layouts that the model's shape allows and the cluster has room for, smallest first."""
    found = [_evaluate(model, cluster, load, tp, pp, dp) for tp, pp, dp in _shapes(model, cluster)]
    return sorted(found, key=lambda layout: (layout.gpus, layout.pp, layout.dp, -layout.tp))


def blocked(decoder: Decoder, step: int, tp: int) -> str:
    """Why tensor parallelism of this size is impossible; empty when it is not. `step`: block of the quantisation, 1 without."""
    return _obstacle(decoder, step, tp).replace("TP *", f"TP {tp}")


def _obstacle(decoder: Decoder, step: int, tp: int) -> str:
    """The same with `TP *` for the size, so that sizes with one reason have one sentence."""
    heads = decoder.heads
    if heads.query and heads.query % tp:
        return f"{counted(heads.query, 'attention head')} {'does' if heads.query == 1 else 'do'} not divide by TP *"
    if heads.query and not heads.latent and heads.kv % tp and tp % heads.kv:
        return f"{heads.kv} KV heads and TP * do not divide one another"
    width = decoder.config.raw("intermediate_size")
    if not decoder.experts and isinstance(width, int) and width % (tp * step if tp > 1 else 1):
        return f"intermediate_size {width} does not divide by TP *" + (f" x block {step}" if step > 1 else "")
    if decoder.experts and _whole(decoder, step, tp) and decoder.experts % tp:
        return f"{decoder.experts} experts do not divide by TP *, and neither does one expert's width"
    return ""


def impossible(model: Model, cluster: Cluster) -> list[str]:
    """The TP sizes that the GPUs would allow and the model does not, one sentence a reason."""
    sizes: dict[str, list[int]] = {}
    for tp in _tp_sizes(cluster):
        if why := _obstacle(model.decoder, model.quantisation.block, tp):
            sizes.setdefault(why, []).append(tp)
    return [
        f"TP {', '.join(map(str, found))} {'is' if len(found) == 1 else 'are'} impossible: "
        + why.replace("TP *", f"TP {found[0]}" if len(found) == 1 else "any of these")
        for why, found in sizes.items()
    ]


def whole_experts(model: Model, tp: int) -> bool:
    """Whether an expert cannot be cut by TP: its width is no multiple of TP x quantisation block."""
    return _whole(model.decoder, model.quantisation.block, tp)


def _whole(decoder: Decoder, step: int, tp: int) -> bool:
    return bool(decoder.experts) and tp > 1 and expert_width(decoder.config) % (tp * step) != 0


def _shapes(model: Model, cluster: Cluster) -> Iterator[tuple[int, int, int]]:
    stages = len(model.decoder.kinds)
    for tp in _tp_sizes(cluster):
        if blocked(model.decoder, model.quantisation.block, tp):
            continue
        for pp in _stages(cluster, tp, stages):
            yield tp, pp, 1
    if model.decoder.heads.latent and model.decoder.experts:
        for dp in (cluster.per_node * n for n in range(1, cluster.nodes + 1)):
            if dp > 1 and model.decoder.experts % dp == 0:
                yield 1, 1, dp


def _tp_sizes(cluster: Cluster) -> Iterator[int]:
    """Powers of two, divisors of a node, and the node itself."""
    for tp in range(1, min(cluster.total, MAX_TP) + 1):
        if tp > cluster.domain and tp % cluster.per_node:
            continue
        if tp & (tp - 1) and tp not in (cluster.per_node, cluster.domain) and cluster.per_node % tp:
            continue
        yield tp


def _stages(cluster: Cluster, tp: int, layers: int) -> list[int]:
    """Pipeline sizes worth a look: 1, powers of two, and one stage a node."""
    limit = min(cluster.total // tp, layers, 64)
    return sorted(
        {pp for pp in range(1, limit + 1) if not pp & (pp - 1) or (pp <= cluster.nodes and tp == cluster.per_node)}
    )


def _evaluate(model: Model, cluster: Cluster, load: Load, tp: int, pp: int, dp: int) -> Layout:
    parts = split_layers(len(model.decoder.kinds), pp)
    budget = cluster.gpu.usable_bytes * load.utilization
    spare = overhead(model.decoder, tp, pp * dp, load.batched_tokens, model.dtype_bytes)
    weights, pools, tokens = [], [], []
    flight = load.batched_tokens * (pp if pp > 1 else ASYNC_BATCHES)
    for stage, (start, end) in enumerate(parts):
        held = rank_bytes(model, tp, dp, start, end, stage == 0, stage == pp - 1)
        pool = int(budget - held - spare.total)
        mine = [cache.on_rank(tp) for layer in model.caches[start:end] for cache in layer]
        weights.append(held)
        pools.append(pool)
        tokens.append(capacity(pool, mine, load.max_model_len, flight) if mine or pool < 0 else -1)
    held_tokens = [count for count in tokens if count >= 0]
    kv_tokens = dp * min(held_tokens) if held_tokens else 0
    gpus = tp * pp * dp
    replicas = max(cluster.total // gpus, 1)
    requests = max(-(-load.concurrency // replicas), 1)
    fits, why = _verdict(kv_tokens, min(pools), requests, load, dp)
    nodes = -(-gpus // cluster.per_node)
    ep = tp * dp if dp > 1 or whole_experts(model, tp) else 1
    return Layout(tp, pp, dp, ep, replicas, max(weights), spare, min(pools), kv_tokens, requests, fits, why, nodes)


def _verdict(tokens: int, pool: int, requests: int, load: Load, dp: int) -> tuple[bool, str]:
    needed = requests * load.max_model_len
    if pool < 0:
        return False, f"weights and overhead exceed the GPU by {-pool / GIB:.1f} GiB"
    if tokens < load.max_model_len * dp:
        longest = tokens // dp
        return False, f"KV cache holds {longest:,} tokens, less than one request of {load.max_model_len:,}"
    if tokens < needed:
        return False, f"KV cache holds {tokens:,} tokens, {needed:,} needed for {counted(requests, 'request')} at once"
    return (
        True,
        f"KV cache holds {tokens:,} tokens, {tokens / load.max_model_len:.1f} requests of {load.max_model_len:,}",
    )


def split_layers(total: int, pp: int) -> list[tuple[int, int]]:
    """First and last+1 layer of each stage, as vLLM cuts them: the remainder goes before the last stage."""
    sizes = [total // pp] * pp
    for place in range(2, total % pp + 2):
        sizes[-place] += 1
    bounds = [sum(sizes[:stage]) for stage in range(pp + 1)]
    return list(pairwise(bounds))


def rank_bytes(model: Model, tp: int, dp: int, start: int, end: int, first: bool, last: bool) -> int:
    """Weight bytes of one rank of the stage that holds layers start to end."""
    held = list(model.layers[start:end])
    if first:
        held.append(model.first)
    if last:
        held.append(model.last)
        if model.inventory.tied and not first:
            held.append(model.embedding)
    kv = max(model.decoder.heads.kv, 1)
    whole, cut = sum(part.copy for part in held), sum(part.tp for part in held)
    heads, experts = sum(part.kv for part in held), sum(part.experts for part in held)
    return int(model.scale * (whole + cut / tp + heads * -(-kv // tp) / kv + experts / (tp * dp)))
