"""The `vllm serve` line of a plan: its model, and the options that go into a manifest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class RenderError(ValueError):
    """The plan cannot become manifests as asked: one sentence with the way out."""


_SPREAD = {
    "--distributed-executor-backend",
    "--data-parallel-size-local",
    "--data-parallel-address",
    "--data-parallel-rpc-port",
    "--data-parallel-start-rank",
}


def _serve_line(commands: Sequence[str]) -> list[str]:
    line = next((line for line in commands if line.startswith("vllm serve ")), None)
    if line is None:
        raise RenderError("the plan holds no `vllm serve` line")
    return shlex.split(line, comments=True)


def model_of(commands: Sequence[str]) -> str:
    return _serve_line(commands)[2]


def options_of(commands: Sequence[str]) -> list[str]:
    """Of the planned line, without the model and without what says how nodes find each other."""
    words = _serve_line(commands)[3:]
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if word in _SPREAD:
            words.pop(0)
        elif word != "--headless":
            kept.append(word)
    return kept
