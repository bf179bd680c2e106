"""A process that crashed by itself while others still worked with it: what they then say of their connections and packets follows from it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal

_CRASH = re.compile(
    r"segfault at |[Ss]egmentation fault|Illegal instruction|invalid opcode|protection fault|Bus error|SIGSEGV|SIGBUS"
)
_PATHS = ("ib-path-unreachable", "bootstrap-peer-unreachable")


def crashed_first(signals: Sequence[Signal]) -> None:
    """Changes signals. One crash beside several ranks that aborted themselves is the first fault where it stands before what the others say in the same log;
    where it stands in another file, whose clock may be another, it is one of the two."""
    crashes = [
        signal
        for signal in signals
        if signal.cause == "rank-died"
        and signal.says >= Says.STRONG
        and not signal.condition
        and any(_CRASH.search(item.text) for item in signal.evidence)
    ]
    lost = [signal for signal in signals if signal.cause in _PATHS and not signal.condition and signal.evidence]
    tellers = {signal.where.get("pid") for signal in lost} - {None}
    if not crashes or not lost or any(crash.where.get("pid") in tellers for crash in crashes):
        return
    for signal in lost:
        source = signal.evidence[0].source
        after = [crash for crash in crashes if any(item.source == source for item in crash.evidence)]
        if any(crash.order < signal.order for crash in after):
            signal.cause, signal.says, signal.candidates = "", Says.CASCADE, ()
        elif not after:
            signal.says = min(signal.says, Says.HINT)
