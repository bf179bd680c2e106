"""Which layout to take, and why: one node before several, replicas before spreading, quantising before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncdiag.nodeset import counted
from ncdiag.sizing.gpus import Cluster
from ncdiag.sizing.layouts import Layout, Load, Model, layouts
from ncdiag.sizing.quantise import quantised_copies

GIB = 2**30
SHORTER = (262144, 131072, 65536, 32768, 16384, 8192, 4096, 2048)


@dataclass(frozen=True)
class Choice:
    """The recommendation. layout None: nothing fits."""

    layout: Layout | None
    reasons: tuple[str, ...]
    quantised: tuple[str, Layout] | None = None  # (fp8 or 4-bit, the layout that would then do)


def choose(model: Model, found: Sequence[Layout], cluster: Cluster, load: Load) -> Choice:
    """The smallest layout that fits, by the order of preference in `rank`."""
    fitting = sorted((layout for layout in found if layout.fits), key=lambda layout: rank(layout, cluster))
    best = fitting[0] if fitting else None
    smaller = None
    if best is None or best.nodes > 1:
        smaller = _quantised(model, cluster, load)
    return Choice(best, tuple(_reasons(model, best, found, cluster, load) if best else _no_reasons(found)), smaller)


def rank(layout: Layout, cluster: Cluster) -> tuple[int, ...]:
    """Lower is better: few nodes, TP inside the NVLink domain, stages only across nodes, plain, few GPUs."""
    stages = int(layout.pp > layout.nodes)
    return (layout.nodes, int(layout.tp > cluster.domain), stages, layout.dp, layout.gpus, layout.pp)


def _reasons(model: Model, best: Layout, found: Sequence[Layout], cluster: Cluster, load: Load) -> list[str]:
    out = [f"{best.weights_bytes / GIB:.1f} GiB of weights a GPU; {best.why}"]
    smaller = [layout for layout in found if layout.gpus < best.gpus and not layout.fits and layout.dp == 1]
    if smaller:
        near = max(smaller, key=lambda layout: (layout.gpus, layout.kv_tokens))
        out.append(f"TP {near.tp}{f' x PP {near.pp}' if near.pp > 1 else ''} is too small: {near.why}")
    if best.nodes == 1 and cluster.nodes > 1:
        out.append("one node is enough: replicas on the other nodes serve more than one engine spread over them")
    if best.replicas > 1:
        out.append(f"room for {best.replicas} replicas on {cluster.total} GPUs: data parallel, no traffic between them")
    if best.tp > 1 and best.tp <= cluster.domain and cluster.gpu.domain > 1:
        out.append(f"TP {best.tp} stays inside the NVLink domain of {cluster.domain} GPUs")
    if best.pp > 1 and best.nodes > 1 and best.tp <= cluster.domain:
        out.append(
            f"PP {best.pp} crosses the nodes: it sends one hidden state a token, TP would send two all-reduces a layer"
        )
    if best.nodes > 1 and best.tp > cluster.domain:
        out.append(f"TP {best.tp} crosses the NVLink domain of {cluster.domain}: every layer waits for the network")
    if best.dp > 1:
        out.append(
            f"data-parallel attention, experts over {best.ep} GPUs: TP would keep the same MLA cache on every GPU"
        )
    elif best.ep > 1:
        block = model.quantisation.block
        out.append(f"experts stay whole (EP {best.ep}): their width does not divide by TP {best.tp} x block {block}")
    return out


def _no_reasons(found: Sequence[Layout]) -> list[str]:
    if not found:
        return ["no layout is possible: heads, layers or experts do not divide over these GPUs"]
    best = max(found, key=lambda layout: (layout.pool_bytes, layout.kv_tokens))
    return [f"nothing fits; nearest is TP {best.tp} x PP {best.pp} on {counted(best.gpus, 'GPU')}: {best.why}"]


def _quantised(model: Model, cluster: Cluster, load: Load) -> tuple[str, Layout] | None:
    """The layout on one node that a quantised copy of a 16-bit model would have."""
    for name, quantisation in quantised_copies(model.quantisation, cluster.gpu.fp8):
        found = layouts(replace(model, quantisation=quantisation), replace(cluster, nodes=1), load)
        fitting = sorted((layout for layout in found if layout.fits), key=lambda layout: rank(layout, cluster))
        if fitting:
            return name, fitting[0]
    return None


def shorter_length(model: Model, cluster: Cluster, load: Load) -> int | None:
    """The longest usual max-model-len, below the one asked, with which some layout fits."""
    for length in SHORTER:
        if length < load.max_model_len and any(
            layout.fits for layout in layouts(model, cluster, replace(load, max_model_len=length))
        ):
            return length
    return None
