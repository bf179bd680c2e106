"""KV cache tokens against what vLLM 0.32.0 (CPU build) printed for the models of benchmarks/kv_tokens.py.

The table is that script's output: 64 MiB of cache, max_model_len 2048, max_num_batched_tokens 512. With
NCDIAG_LAB_PYTHON set to an interpreter that has vLLM, one of them is started again.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncdiag.sizing.cache import LayerCache, capacity

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kv_tokens.py"
BENCHMARK: dict[str, Any] = runpy.run_path(str(SCRIPT))

PRINTED: dict[str, tuple[int, int, int]] = {  # "CPU KV cache size: N tokens", block size, tokens in flight
    "mha": (10_880, 128, 512),
    "gqa": (43_648, 128, 512),
    "gqa-bias": (26_112, 128, 512),
    "mqa": (87_296, 128, 512),
    "head-dim": (32_768, 128, 512),
    "sliding": (99_766, 128, 512),
    "mixed-1-5": (41_120, 128, 512),
    "mixed-1-1": (36_418, 128, 512),
    "mla": (14_560, 16, 2048),
    "hybrid-delta": (20_889, 640, 512),
}


@pytest.mark.parametrize("kind", PRINTED)
def test_tokens_as_vllm_prints_them(tmp_path: Path, kind: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**BENCHMARK["COMMON"], **BENCHMARK["MODELS"][kind]}))
    tokens, block, flight = PRINTED[kind]
    assert BENCHMARK["ours"](tmp_path, block, flight) == pytest.approx(tokens, rel=0.02)


def test_a_rank_holds_whole_heads() -> None:
    layer = LayerCache("full", token_bytes=8 * 256, heads=8)
    assert [layer.on_rank(tp).token_bytes for tp in (1, 2, 8, 16)] == [2048, 1024, 256, 256]
    latent = LayerCache("full", token_bytes=1152, heads=1)
    assert latent.on_rank(8).token_bytes == 1152


def test_no_pool_holds_nothing() -> None:
    layer = LayerCache("full", token_bytes=256)
    assert capacity(-5, [layer], 1024, 512) == 0
    assert capacity(4095, [layer], 1024, 512) == 0


@pytest.mark.vllm
@pytest.mark.timeout(400)
def test_a_real_engine_agrees() -> None:
    python = os.environ.get("NCDIAG_LAB_PYTHON")
    if not python:
        pytest.skip("NCDIAG_LAB_PYTHON does not name an interpreter with vLLM")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--python", python, "gqa"],
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )
    assert done.returncode == 0 and "vLLM failed" not in done.stdout, done.stdout + done.stderr
