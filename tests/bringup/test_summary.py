"""KV cache lines of all vLLM versions, and what they mean."""

from __future__ import annotations

import pytest

from ncdiag.bringup.command import Engine
from ncdiag.bringup.summary import kv_cache, summarise

V0 = [
    "INFO 01-02 03:04:05 gpu_executor.py:122] # GPU blocks: 2048, # CPU blocks: 512",
    "INFO Maximum concurrency for 4096 tokens per request: 8.00x",
]
V1 = [
    "INFO kv_cache_utils.py:634] GPU KV cache size: 1,234,560 tokens",
    "INFO kv_cache_utils.py:637] Maximum concurrency for 40,960 tokens per request: 30.14x",
]
NOW = [
    "(EngineCore pid=7) INFO [kv_cache_utils.py:1] GPU KV cache size: 65,536 tokens, Maximum concurrency for 8,192 tokens per request: 8.00x"
]


@pytest.mark.parametrize(
    ("lines", "tokens", "blocks", "requests"),
    [(V0, 32768, 2048, 8.0), (V1, 1234560, None, 30.14), (NOW, 65536, None, 8.0), (["nothing"], None, None, None)],
)
def test_lines_of_each_version(
    lines: list[str], tokens: int | None, blocks: int | None, requests: float | None
) -> None:
    cache = kv_cache(lines, Engine())
    assert (cache.kv_tokens, cache.blocks, cache.requests) == (tokens, blocks, requests)


def test_blocks_and_requests_are_worked_out_from_the_command_line() -> None:
    cache = kv_cache(["INFO GPU KV cache size: 65,536 tokens"], Engine(block_size=64, max_model_len=4096))
    assert (cache.blocks, cache.requests) == (1024, 16.0)
    assert (
        cache.sentence()
        == "65,536 tokens, 1,024 blocks of 64, 16.0 requests at a time of the full 4,096 tokens; more where they are shorter"
    )


def test_the_smallest_rank_counts() -> None:
    assert (
        kv_cache(["GPU KV cache size: 65,536 tokens", "GPU KV cache size: 61,440 tokens"], Engine()).kv_tokens == 61440
    )


def test_network_of_ncclss_log_and_a_warning_that_matters() -> None:
    log = [
        "n1:11:11 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.",
        "n1:11:11 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.1<0>",
        "n1:11:11 [0] NCCL INFO Using network Socket",
    ]
    assert summarise({"a": log}, [], Engine()).network == "NCCL: Socket"
