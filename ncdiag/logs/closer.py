"""A closer look at signals with what stands beside them: a sentence that another line explains, an attempt that tells two reasons apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers

_GENERAL = ("remote process exited or there was a network error", "ncclRemoteError")
REACH = 6  # lines below the sentence that are of the same report


def look(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """Changes signals; those that it finds besides are returned."""
    _fold_general(signals)
    yield from readers.ports.half_open(signals)


def _fold_general(signals: Sequence[Signal]) -> None:
    """torch's report of a failed call of NCCL begins with a sentence that fits every lost connection; NCCL's own last error below it says more."""
    specific = {
        (item.source, item.line)
        for signal in signals
        if signal.says >= Says.SYMPTOM
        for item in signal.evidence[:1]
        if not _general(item.text)
    }
    for signal in signals:
        item = signal.evidence[0] if signal.evidence else None
        if item is None or item.line is None or signal.says > Says.HINT or not _general(item.text):
            continue
        if any((item.source, item.line + step) in specific for step in range(1, REACH + 1)):
            signal.cause, signal.says = "", Says.CASCADE


def _general(text: str) -> bool:
    return any(words in text for words in _GENERAL)
