"""A model's config.json beside the tensor parallel size that was asked for. Source: vLLM, ModelConfig.verify_with_parallel_config: the heads must divide."""

from __future__ import annotations

import re

from ncdiag.logs.model import Line

_HEADS = re.compile(r'"(?P<name>num_attention_heads|n_head|num_heads)": (?P<n>\d{1,5})\b')
_SIZE = re.compile(r"(?:--tensor-parallel-size[=\s\"',]+|-tp[=\s]+|tensor_parallel_size['\"]?[=:] ?)(?P<n>\d{1,4})\b")


class Heads:
    """Numbers of attention heads, and sizes."""

    triggers = (
        '"num_attention_heads"',
        '"n_head"',
        '"num_heads"',
        "tensor-parallel-size",
        "tensor_parallel_size",
        " -tp ",
    )

    def __init__(self) -> None:
        self._heads: dict[int, Line] = {}
        self._sizes: dict[int, Line] = {}

    def take(self, line: Line) -> bool:
        heads, size = _HEADS.search(line.text), _SIZE.search(line.text)
        if heads and len(self._heads) < 100:
            self._heads.setdefault(int(heads["n"]), line)
        if size and len(self._sizes) < 100:
            self._sizes.setdefault(int(size["n"]), line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> tuple[()]:
        return ()

    def undivided(self) -> tuple[int, Line, int, Line] | None:
        """`(heads, line, size, line)` where one model and one size are told, and do not fit."""
        if len(self._heads) != 1 or len(self._sizes) != 1:
            return None
        (heads, at), (size, asked) = next(iter(self._heads.items())), next(iter(self._sizes.items()))
        return (heads, at, size, asked) if size > 1 and heads % size else None
