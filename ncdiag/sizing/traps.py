"""What people fall into with this model, layout and setting. Each trap is one sentence with its numbers."""

from __future__ import annotations

from dataclasses import replace

from ncdiag.nodeset import counted
from ncdiag.sizing.cache import sequence_bytes
from ncdiag.sizing.gpus import Cluster
from ncdiag.sizing.layers import CHUNKED, SLIDING
from ncdiag.sizing.layouts import Layout, Load, Model, layouts

GIB = 2**30
MIB = 2**20
TIGHT_POOL = 2 * GIB  # a pool below this changes by a large part with any small error of the estimate


def traps(model: Model, best: Layout | None, cluster: Cluster, load: Load, longest: int, dtype: str) -> list[str]:
    """longest: the model's own context length, 0 unknown. dtype: as forced by the user, `auto` if not."""
    out = _length(best, load, longest) + _fp8(model, cluster, dtype) + _memory(model, best, cluster, load)
    return out + _cache(model, best) + _network(model, best, cluster)


def _length(best: Layout | None, load: Load, longest: int) -> list[str]:
    out = []
    if longest and load.max_model_len > longest:
        out.append(
            f"--max-model-len {load.max_model_len} is more than the model's {longest}: vLLM refuses it without"
            " VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, and the answers get worse beyond it"
        )
    if best and best.kv_tokens:
        share = 100 * load.max_model_len / best.kv_tokens
        if share > 25:
            out.append(
                f"one request of {load.max_model_len:,} tokens takes {share:.0f} % of an engine's KV cache: at full length"
                f" {best.kv_tokens // load.max_model_len} run at once and the rest queue; a smaller --max-model-len keeps one"
                " long request from taking the pool"
            )
    return out


def _fp8(model: Model, cluster: Cluster, dtype: str) -> list[str]:
    name, quantised = model.quantisation.name, model.quantisation.cost is not None
    out = []
    if quantised and dtype != "auto":
        worse = {"float32": " (twice the memory)"}.get(dtype, "")
        worse = ", and float16 can overflow in a model trained in bfloat16" if dtype in ("float16", "half") else worse
        out.append(
            f"--dtype {dtype} with a {name} checkpoint: the quantised weights stay as they are, but activations, norms,"
            f" lm_head and an `auto` KV cache are forced to {dtype}{worse}; leave --dtype auto"
        )
    elif quantised and model.quantisation.bits == 8:
        out.append(f"{name} checkpoint: leave --dtype and --quantization alone, vLLM reads both from config.json")
    if quantised and model.quantisation.bits == 8 and "fp8" in name and not cluster.gpu.fp8:
        out.append(
            f"{cluster.gpu.name} has no FP8 tensor cores: the weights stay small (Marlin, weight only), not faster"
        )
    return out


def _memory(model: Model, best: Layout | None, cluster: Cluster, load: Load) -> list[str]:
    total = cluster.gpu.usable_bytes
    outside = total * (1 - load.utilization) / GIB
    out = []
    if load.utilization > 0.95:
        out.append(
            f"--gpu-memory-utilization {load.utilization:.2f} leaves {outside:.1f} GiB a GPU for NCCL buffers, CUDA graphs and"
            " fragments that the start-up profile does not see: out-of-memory under load; 0.90 to 0.95 is safe on a GPU of its own"
        )
    if best is None:
        return out
    more = _one_percent(model, best, cluster, load)
    out.append(
        f"--gpu-memory-utilization {load.utilization:.2f}: {outside:.1f} GiB a GPU stay free; each 0.01 more is"
        f" {0.01 * total / GIB:.2f} GiB, about {more:,} KV tokens an engine; lower it if anything else uses the GPU"
    )
    if best.pool_bytes < TIGHT_POOL:
        out.append(
            f"only {best.pool_bytes / GIB:.1f} GiB a GPU are left for the KV cache: the estimate's error can be that large;"
            " set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True against fragmentation, or --max-num-batched-tokens lower"
        )
    return out


def _one_percent(model: Model, best: Layout, cluster: Cluster, load: Load) -> int:
    more = layouts(model, cluster, replace(load, utilization=min(load.utilization + 0.01, 1.0)))
    same = next((x for x in more if (x.tp, x.pp, x.dp) == (best.tp, best.pp, best.dp)), best)
    return max(same.kv_tokens - best.kv_tokens, 0)


def _cache(model: Model, best: Layout | None) -> list[str]:
    heads, out = model.decoder.heads, []
    flat = [cache for layer in model.caches for cache in layer]
    local = sum(cache.kind in (SLIDING, CHUNKED) for cache in flat)
    if local:
        out.append(
            f"{local} of {counted(len(flat), 'layer')} keep only a window ({max(c.window for c in flat)} tokens): kv_tokens counts what vLLM's"
            " hybrid cache manager holds; kv_bytes_per_token is what a token costs before the window has moved on"
        )
    states = sequence_bytes(model.caches)
    if states:
        out.append(
            f"recurrent layers keep {states / MIB:.1f} MiB for each sequence whatever its length, beside the KV cache"
        )
    if best and heads.latent and best.tp > 1:
        out.append(
            f"MLA: each of the {best.tp} TP ranks keeps the whole cache; --data-parallel-size with --enable-expert-parallel"
            " (or --decode-context-parallel-size) keeps it once"
        )
    elif best and heads.kv and best.tp > heads.kv:
        out.append(
            f"TP {best.tp} is more than the {counted(heads.kv, 'KV head')}: each head is kept {best.tp // heads.kv} times"
        )
    return out


def _network(model: Model, best: Layout | None, cluster: Cluster) -> list[str]:
    out = []
    if best and best.tp > 1 and cluster.gpu.domain == 1:
        out.append(
            f"{cluster.gpu.name} has no NVLink here: TP {best.tp} runs over PCIe; replicas or PP suffer less from it"
        )
    if best and best.nodes > 1:
        out.append(
            "several nodes: prove the network first (`ncdiag preflight`), set VLLM_HOST_IP, NCCL_SOCKET_IFNAME and"
            " GLOO_SOCKET_IFNAME on every node, and have the model at the same path everywhere"
        )
    layers = len(model.decoder.kinds)
    if best and best.pp > 1 and layers % best.pp:
        out.append(
            f"{counted(layers, 'layer')} do not divide by PP {best.pp}: the stages differ by one layer (VLLM_PP_LAYER_PARTITION)"
        )
    return out
