"""What a start that came up says of itself: KV cache and what it means, the network, warnings that matter (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.bringup.command import Engine
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause, RankState

_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: (\d+(?:\.\d+)?)x")
_BLOCKS = re.compile(r"# (?:GPU|CUDA|CPU|HPU|TPU) blocks: (\d+)")
_BLOCK_SIZE = re.compile(r"\bblock_size[=:]\s*(\d+)|--block-size[ =](\d+)")
_MAX_LEN = re.compile(r"\bmax_seq_len=(\d+)|Using max model len (\d+)")
_DEFAULT_BLOCK = 16
_GOOD = ("healthy", "slow-not-hung", "unresolved")


@dataclass
class KvCache:
    """None: the log does not say it."""

    kv_tokens: int | None = None
    block_size: int | None = None
    blocks: int | None = None
    max_model_len: int | None = None
    requests: float | None = None
    """How many requests of the full length fit at the same time."""

    def sentence(self) -> str:
        """Empty where nothing is known."""
        if self.kv_tokens is None:
            return ""
        parts = [f"{self.kv_tokens:,} tokens"]
        if self.blocks and self.block_size:
            parts.append(f"{self.blocks:,} blocks of {self.block_size}")
        if self.requests is not None and self.max_model_len:
            parts.append(
                f"{self.requests:.1f} requests at a time of the full {self.max_model_len:,} tokens; more where they are shorter"
            )
        return ", ".join(parts)


@dataclass
class Summary:
    kv_cache: KvCache = field(default_factory=KvCache)
    network: str = ""
    """Which way the ranks of different nodes talk, as NCCL's log or the sockets say; empty with one node."""
    warnings: list[Cause] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kv_cache": {**vars(self.kv_cache), "sentence": self.kv_cache.sentence()},
            "network": self.network,
            "warnings": [cause.as_dict() for cause in self.warnings],
        }


def summarise(logs: dict[str, list[str]], states: Sequence[RankState], engine: Engine) -> Summary:
    """From all logs of the start, and the last look."""
    found = of_streams(
        Stream(name, iter([raw]), raw) for name, lines in sorted(logs.items()) if (raw := "\n".join(lines).encode())
    )
    lines = [line for part in logs.values() for line in part]
    warnings = [cause for cause in found.verdict.causes if cause.cause not in _GOOD and cause.confidence != "possible"]
    networks = sorted({process.network for process in found.nccl.processes if process.network})
    network = "NCCL: " + ", ".join(networks) if networks else _sockets(states)
    return Summary(kv_cache(lines, engine), network, warnings)


def kv_cache(lines: Iterable[str], engine: Engine) -> KvCache:
    """vLLM 0.9 and later print tokens, 0.6 blocks. The smallest of several ranks counts."""
    cache = KvCache(block_size=engine.block_size, max_model_len=engine.max_model_len)
    for line in lines:
        if match := _TOKENS.search(line):
            tokens = int(match[1].replace(",", ""))
            cache.kv_tokens = min(cache.kv_tokens or tokens, tokens)
        if match := _CONCURRENCY.search(line):
            cache.max_model_len, cache.requests = int(match[1].replace(",", "")), float(match[2])
        if match := _BLOCKS.search(line):
            cache.blocks = min(cache.blocks or int(match[1]), int(match[1]))
        if cache.block_size is None and (match := _BLOCK_SIZE.search(line)):
            cache.block_size = int(match[1] or match[2])
        if cache.max_model_len is None and (match := _MAX_LEN.search(line)):
            cache.max_model_len = int(match[1] or match[2])
    if cache.kv_tokens is None and cache.blocks:
        cache.block_size = cache.block_size or _DEFAULT_BLOCK
        cache.kv_tokens = cache.blocks * cache.block_size
    elif cache.kv_tokens and cache.block_size and not cache.blocks:
        cache.blocks = cache.kv_tokens // cache.block_size
    if cache.kv_tokens and cache.max_model_len and cache.requests is None:
        cache.requests = cache.kv_tokens / cache.max_model_len
    return cache


def _sockets(states: Sequence[RankState]) -> str:
    """Without NCCL's log: the addresses over which ranks of different nodes are connected."""
    homes = {(state.node, state.netns) for state in states if state.rank is not None}
    if len(homes) < 2:
        return ""
    pairs = set()
    ends = {
        (socket.remote, socket.local): state
        for state in states
        for socket in state.sockets
        if socket.state == "ESTABLISHED"
    }
    for state in states:
        for socket in state.sockets:
            other = ends.get((socket.local, socket.remote))
            if other is not None and (other.node, other.netns) != (state.node, state.netns) and state.rank is not None:
                pairs.add(f"{state.node} {socket.local.rpartition(':')[0]}")
    return ("sockets between " + ", ".join(sorted(pairs)) if pairs else "") + (
        "; NCCL_DEBUG=INFO shows NCCL's own choice"
        if any("NCCL" in key for state in states for key in state.settings)
        else ""
    )
