"""The lines to type for a layout: `vllm serve`, and `ray start` where it spans nodes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from ncdiag.sizing.gpus import Cluster
from ncdiag.sizing.layouts import Layout, Load

RAY_PORT = 6379


@dataclass(frozen=True)
class Extra:
    """Options of the engine that do not come from the layout."""

    model: str  # path or name as the user gave it
    kv_dtype: str  # auto: not printed
    dtype: str  # auto: not printed
    quantization: str = ""  # made by the engine at load
    longer: bool = False  # than the model's own context: vLLM refuses that without a word of its own


def commands(layout: Layout, cluster: Cluster, load: Load, extra: Extra) -> list[str]:
    """In the order they are typed. Comments say where each runs."""
    serve = _serve(layout, cluster, load, extra)
    if layout.nodes == 1:
        each = f"  # on each of the {cluster.nodes} nodes, behind a load balancer" if cluster.nodes > 1 else ""
        return [serve + each]
    if layout.dp > 1:
        return _data_parallel(layout, cluster, serve)
    gpus = cluster.per_node
    return [
        f"ray start --head --node-ip-address=$HEAD_IP --port={RAY_PORT} --num-gpus={gpus}  # on the first node",
        f"ray start --address=$HEAD_IP:{RAY_PORT} --node-ip-address=$NODE_IP --num-gpus={gpus}"
        f"  # on each of the other {layout.nodes - 1}",
        f"{serve} --distributed-executor-backend ray  # on the first node, when `ray status` shows {layout.gpus} GPUs",
    ]


def _serve(layout: Layout, cluster: Cluster, load: Load, extra: Extra) -> str:
    words = ["VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"] if extra.longer else []
    words += ["vllm", "serve", shlex.quote(extra.model), f"--tensor-parallel-size {layout.tp}"]
    if layout.pp > 1:
        words.append(f"--pipeline-parallel-size {layout.pp}")
    replicas = cluster.per_node // layout.gpus if layout.nodes == 1 else 1
    if layout.dp > 1:
        words.append(f"--data-parallel-size {layout.dp}")
    elif replicas > 1:
        words.append(f"--data-parallel-size {replicas}")
    if layout.ep > 1:
        words.append("--enable-expert-parallel")
    words.append(f"--max-model-len {load.max_model_len}")
    words.append(f"--gpu-memory-utilization {load.utilization:.2f}")
    if load.batched_tokens != cluster.gpu.batched_tokens:
        words.append(f"--max-num-batched-tokens {load.batched_tokens}")
    for option, value in (("kv-cache-dtype", extra.kv_dtype), ("dtype", extra.dtype)):
        if value != "auto":
            words.append(f"--{option} {value}")
    if extra.quantization:
        words.append(f"--quantization {extra.quantization}")
    return " ".join(words)


def _data_parallel(layout: Layout, cluster: Cluster, serve: str) -> list[str]:
    """Data-parallel attention over nodes: the same line everywhere, each with its first rank."""
    local = cluster.per_node // layout.tp
    common = (
        f"{serve} --data-parallel-size-local {local} --data-parallel-address $HEAD_IP --data-parallel-rpc-port 29550"
    )
    lines = [f"{common}  # on the first node"]
    for node in range(1, layout.nodes):
        lines.append(f"{common} --data-parallel-start-rank {node * local} --headless  # on node {node + 1}")
    return lines
