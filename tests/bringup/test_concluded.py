"""Whether a log alone says that a start is up, or has failed."""

from __future__ import annotations

import pytest

from ncdiag.bringup.concluded import concluded

BEGIN = "INFO 01-02 10:00:00 [api_server.py:1] vLLM API server version 0.11.0"
LOAD = "(EngineCore pid=7) INFO 01-02 10:00:01 Starting to load model /m..."
SGLANG = "[2025-01-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=2)"
UP = "(APIServer pid=6) INFO:     Application startup complete."
REQUEST = '(APIServer pid=6) INFO:     192.0.2.7:5000 - "POST /v1/completions HTTP/1.1" 200 OK'
TRACE = ["Traceback (most recent call last):", '  File "/x/a.py", line 1, in f']
BROKEN = "(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above."


@pytest.mark.parametrize(
    ("lines", "silent_s", "said"),
    [
        ([], 100, ""),
        ([BEGIN, LOAD], 1000, ""),
        ([BEGIN, LOAD, UP], 0, "ready"),
        ([SGLANG, "The server is fired up and ready to roll!"], 0, "ready"),
        ([SGLANG, "The server is fired up and ready to roll!", SGLANG], 1000, ""),
        ([BEGIN, LOAD, UP, *[REQUEST] * 500], 1000, "ready"),
        ([BEGIN, UP, *TRACE, "ValueError: max_tokens must be at least 1"], 1000, "ready"),
        ([BEGIN, LOAD, BROKEN], 10, "failed"),
        ([BEGIN, LOAD, BROKEN], 0, ""),
        ([BEGIN, UP, REQUEST, "EngineCore encountered a fatal error."], 10, "failed"),
        ([BEGIN, BROKEN, BEGIN, LOAD], 1000, ""),
        ([BEGIN, BROKEN, BEGIN, LOAD, UP], 1000, "ready"),
        ([BEGIN, UP, BEGIN, LOAD], 1000, ""),
        ([BEGIN, *TRACE, "OSError: /m is no folder"], 100, "failed"),
        ([BEGIN, *TRACE, "OSError: /m is no folder"], 5, ""),
        ([BEGIN, *TRACE, "ImportError: no module named x", LOAD], 1000, ""),
        (["usage: vllm serve [model_tag]", "vllm serve: error: unrecognized arguments: --tpp"], 10, "failed"),
        (["torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "], 10, "failed"),
    ],
)
def test_the_last_start_in_the_log_counts(lines: list[str], silent_s: float, said: str) -> None:
    assert concluded(lines, silent_s) == said
