"""`torch.cuda.memory_summary()`: memory that torch holds in pieces too small to be used. Source: torch/cuda/memory.py, 2.0 to 2.9."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_HEAD = re.compile(r"PyTorch CUDA memory summary, device ID (?P<device>\d{1,3})")
_FAILED = re.compile(r"CUDA OOMs: (?P<n>\d{1,9})")
_ROW = re.compile(
    r"^\s*\|\s*(?P<name>Allocated memory|GPU reserved memory|Non-releasable memory)\s*\|\s*(?P<size>\d{1,12}) (?P<unit>[KMGT]i?B|B)\b"
)
_UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SHARE = 0.15  # of what is held, from which the pieces are worth naming


class MemorySummary:
    """Tables of one device each."""

    triggers = ("PyTorch CUDA memory summary",)

    def __init__(self) -> None:
        self._device: Line | None = None
        self._number = 0
        self._front = ""
        """What stands in front of the table's lines."""
        self._failures = 0
        self._sizes: dict[str, int] = {}
        self._signals: list[Signal] = []

    def take(self, line: Line) -> bool:
        front, bar, rest = line.text.partition("|")
        head = _HEAD.search(rest)
        if head:
            self._judge()
            self._device, self._number, self._failures, self._sizes = line, int(head["device"]), 0, {}
            self._front = front
        elif front != self._front:  # another process, or the end
            self._judge()
            return False
        failed, row = _FAILED.search(rest), _ROW.match(bar + rest)
        if failed:
            self._failures = int(failed["n"])
        if row:
            self._sizes[row["name"]] = int(row["size"]) * _UNITS[row["unit"][0]]
        return self._device is not None

    def _judge(self) -> None:
        line, self._device = self._device, None
        held, pieces = self._sizes.get("GPU reserved memory", 0), self._sizes.get("Non-releasable memory", 0)
        if line is None or not self._failures or not held or pieces < _SHARE * held or len(self._signals) >= 100:
            return
        gib = 1 << 30
        self._signals.append(
            Signal(
                "gpu-memory-fragmented",
                Says.STRONG,
                f"torch holds {held / gib:.1f} GiB of GPU {self._number}, {pieces / gib:.1f} of them in free pieces too small for what was asked for",
                [line.evidence()],
                {"device": self._number},
                order=line.order,
            )
        )

    def end(self, source: str) -> None:
        self._judge()

    def signals(self) -> Iterator[Signal]:
        yield from self._signals
