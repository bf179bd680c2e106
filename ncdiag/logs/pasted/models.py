"""Which models of GPU are named: in tables of nvidia-smi and nccl-tests, `nvidia-smi -L`, logs of engines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Signal
from ncdiag.logs.model import Line

_MODEL = re.compile(r"\b(?:NVIDIA|Tesla) (?:GeForce |Quadro |RTX |TITAN )*(?P<name>GB10|[A-Z]{0,4}\d{1,4}\w*)\b")
_INTEGRATED = frozenset({"GB10"})
"""GPUs that share the memory of the CPU: the NIC reads and writes there without GPUDirect RDMA, which they do not have. Source: NVIDIA's DGX Spark FAQ."""


class Models:
    """The names of GPUs."""

    triggers = ("NVIDIA GB10", "device  ", ": NVIDIA ")

    def __init__(self) -> None:
        self._names: set[str] = set()

    def take(self, line: Line) -> bool:
        if len(self._names) < 100:
            self._names.update(match["name"] for match in _MODEL.finditer(line.text))
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        yield from ()

    @property
    def integrated(self) -> bool:
        """Whether all that are named are parts of the CPU's own package and memory."""
        return bool(self._names) and self._names <= _INTEGRATED
