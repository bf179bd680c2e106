"""What engines, Ray and trainings print on their way: literal and stage, and what a stage that nothing follows usually means."""

from __future__ import annotations

MARKERS: tuple[tuple[str, str], ...] = (
    ("vLLM API server version", "config"),
    ("non-default args", "config"),
    ("Initializing a V1 LLM engine", "engine-init"),
    ("Initializing an LLM engine", "engine-init"),
    ("headless multiproc executor", "engine-init"),
    ("Waiting for creating a placement group", "placement-group"),
    ("DP group leader: node_rank", "workers-spawn"),
    ("distributed_init_method=", "rendezvous"),
    ("vLLM is using nccl==", "nccl"),
    ("GPU P2P access cache", "nccl"),
    ("is assigned as DP rank", "groups-ready"),
    ("Starting to load model", "load"),
    ("Load weight begin", "load"),
    ("Loading safetensors checkpoint shards", "load"),
    ("Loading weights took", "loaded"),
    ("Load weight end", "loaded"),
    ("Model loading took", "loaded"),
    ("Available KV cache memory", "profiled"),
    ("GPU KV cache size", "kv-cache"),
    ("CPU KV cache size", "kv-cache"),
    ("KV cache size: ", "kv-cache"),
    ("# GPU blocks:", "kv-cache"),
    ("Graph capturing finished", "captured"),
    ("init engine (profile", "engine-ready"),
    ("Application startup complete", "ready"),
    ("The server is fired up and ready to roll", "ready"),
    ("Started GRPCInferenceService at", "ready"),
)
"""Literal -> stage, in the order of a start. Source: vLLM 0.6.6 to 0.33, SGLang 0.4, Triton 2."""

ORDER = list(dict.fromkeys(stage for _, stage in MARKERS))

WORKED = (
    "node:__internal_head__",
    "initialized with NCCL version",
    "elapsed time per iteration",
    "Ray runtime started.",
    "All ray workers are active",
    "tokens/sec",
    "Throughput: ",
    "samples per second",
    "RunningAvgSamplesPerSec=",
    "Benchmark duration (s)",
    "Output token throughput",
    "Training complete",
    "'train_runtime': ",
    "'grad_norm': ",
    "All ranks passed",
    "sanity check is successful",
)
"""What is printed only after the ranks or nodes had done something together. Sources: Ray's cluster_resources() and `ray start`, DeepEP, Megatron, transformers' trainer, vLLM and SGLang benchmarks, vLLM's sanity test."""

ENDED = (
    "shutdown triggered",
    "trigger received signal=",
    "SIGTERM received at time",
    "Shutting down",
    "Gracefully stopping",
    "Received exit signal SIGTERM",
)
"""What a server says when it is told to end."""

LOADING = ("Load weight begin", "Detected fp8 checkpoint", "Init torch distributed", "Attempting to load")

FITS = {
    "placement-group": ("ray-resources-infeasible", "ray-placement-group-leaked", "ray-gcs-unreachable"),
    "workers-spawn": ("rank-missing", "bootstrap-blocked-firewall", "node-ip-wrong-interface"),
    "rendezvous": ("rank-missing", "bootstrap-blocked-firewall", "socket-ifname-wrong"),
    "nccl": ("p2p-broken", "socket-ifname-wrong", "bootstrap-blocked-firewall"),
    "groups-ready": ("rank-missing", "p2p-broken", "node-ip-wrong-interface"),
    "load": ("storage-slow", "slow-not-hung", "rank-stuck-outside-collective"),
    "loaded": ("node-ip-wrong-interface", "slow-load-peer-timeout", "rank-stuck-outside-collective"),
    "profiled": ("p2p-broken", "slow-not-hung", "rank-stuck-outside-collective"),
    "kv-cache": ("p2p-broken", "slow-not-hung", "rank-stuck-outside-collective"),
    "captured": ("slow-not-hung", "rank-stuck-outside-collective"),
}
"""Stage after which a start stands still -> what that usually is."""
