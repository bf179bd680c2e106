"""Stages from log lines: what a process prints when it enters one. vLLM 0.6 to 0.33, SGLang 0.4, NCCL, torch, Ray, Hugging Face.

Absence of a line says nothing: many are printed by one rank only, or only at DEBUG.
"""

from __future__ import annotations

import re
from typing import Optional, Sequence

_MARKERS = tuple(
    (stage, re.compile(pattern))
    for stage, pattern in (
        (
            "ready",
            r"Application startup complete\.|Starting vLLM (?:API )?server (?:\d+ )?on http|Available routes are:|"
            r"The server is fired up and ready to roll",
        ),
        (
            "graph-capture",
            r"Capturing CUDA ?graphs|Graph capturing finished|Capturing cudagraphs|Capturing the model for|"
            r"Capture cuda graph (?:begin|end)",
        ),
        (
            "warm-up",
            r"JIT kernel warmup (?:starting|finished)|DeepGEMM warmup|Compile and warming up model for size|FlashInfer autotun",
        ),
        (
            "kv-cache",
            r"KV cache size: [\d,]+ tokens|Available KV cache memory:|# (?:GPU|CUDA|CPU) blocks:|"
            r"init engine \(profile, create kv cache",
        ),
        (
            "compile",
            r"torch\.compile takes|Dynamo bytecode transform|Compiling a graph for|Starting torch\.compile|"
            r"for vLLM's torch\.compile|Directly load the compiled graph|Warming up model for the compilation",
        ),
        (
            "profile",
            r"Memory profiling (?:takes|results)|Initial profiling/warmup run|Encoder cache will be initialized|"
            r"profiling_skip|No available shared memory broadcast block",
        ),
        ("download", r"Downloading shards|Time spent downloading weights|Downloading \(…\)|Fetching \d+ files"),
        (
            "load-weights",
            r"Starting to load model|Loading model weights|Loading (?:safetensors|pt) checkpoint shards|"
            r"Loading weights took|Model loading took|Checkpoint size|Load weight (?:begin|end)",
        ),
        (
            "communicators",
            r"GPU P2P access cache|Custom allreduce is disabled|"
            r"rank \d+ in world size \d+ is assigned as DP rank",
        ),
        (
            "nccl-init",
            r"vLLM is using nccl==|NCCL INFO (?:Bootstrap|NET/|ncclCommInit|comm 0x\w+ rank|Init START)|"
            r"ncclCommInitRank",
        ),
        (
            "groups",
            r"\[Gloo\] Rank \d+ is connected to|is connected to \d+\. Expected number of connected peers|"
            r"CPU SHM communicator",
        ),
        (
            "rendezvous",
            r"world_size=\d+ rank=\d+ local_rank=\d+ distributed_init_method|"
            r"\[c10d\].*(?:client socket|server socket)|TCP client (?:failed to connect|connected)",
        ),
        (
            "wait-workers",
            r"DP group leader: node_rank|headless multiproc executor|"
            r"Launching \d+ data parallel engine\(s\) in headless",
        ),
        ("engine-init", r"Initializing an? (?:V\d+ )?LLM engine"),
        ("handshake", r"Waiting for init message from front-end"),
        ("wait-engine", r"Waiting for \d+ local, \d+ remote core engine proc|Started engine process with PID"),
        ("ray-placement", r"placement group of specs|No current placement group found"),
        ("ray-connect", r"Connecting to existing Ray cluster|Started a local Ray instance|Connected to Ray cluster"),
        (
            "config",
            r"vLLM API server version|non-default args:|Resolved architecture|Using max model len|server_args=ServerArgs\(",
        ),
    )
)


def stage_of_log_line(line: str) -> Optional[str]:
    """The stage whose beginning or end `line` reports; None for any other line."""
    for stage, pattern in _MARKERS:
        if pattern.search(line):
            return stage
    return None


_COMM_MADE = re.compile(r"Init COMPLETE")
_COMM_BEGUN = re.compile(r"Init START|NCCL INFO Bootstrap|vLLM is using nccl==")


def stage_of_log(lines: Sequence[str]) -> Optional[str]:
    """The stage that the last telling line of a log reports; None where there is none, and after NCCL said that a communicator is made: what a
    program does with it is not logged, and NCCL connects more when it is used first."""
    for index in range(len(lines) - 1, -1, -1):
        stage = stage_of_log_line(lines[index])
        if stage == "nccl-init" and _made(lines[: index + 1]):
            return None
        if stage is not None:
            return stage
    return None


def _made(lines: Sequence[str]) -> bool:
    """Whether the last communicator that was begun is complete."""
    for line in reversed(lines):
        if _COMM_MADE.search(line):
            return True
        if _COMM_BEGUN.search(line):
            return False
    return False
