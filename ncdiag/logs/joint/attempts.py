"""Several attempts in one log: what ended an earlier one is not what ended the last, unless the last one met what the earlier left behind."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import harmless
from ncdiag.logs.readers import Readers

LEFT_BEHIND = frozenset(
    {
        "port-in-use", "gpu-memory-occupied", "stale-process", "ray-placement-group-leaked", "ray-gcs-unreachable", "ray-resources-infeasible",
        "rank-missing", "rank-died", "bootstrap-peer-unreachable", "engine-exception",
    }
)  # fmt: skip
"""Causes that an attempt which died often makes for the next one."""


def superseded(signals: Sequence[Signal], readers: Readers) -> None:
    """Changes the signals of attempts before the last one that has an end of its own."""
    for source, start in readers.life.relaunched.items():
        own = [signal for signal in signals if signal.evidence and signal.evidence[0].source == source]
        last = [
            signal
            for signal in own
            if signal.order > start and signal.says >= Says.STRONG and not signal.condition and signal.cause
        ]
        if not any(signal.cause not in LEFT_BEHIND for signal in last):
            continue
        again = {signal.cause for signal in last}
        for signal in own:
            if signal.order < start and not signal.condition and signal.cause not in again:
                harmless(signal)
