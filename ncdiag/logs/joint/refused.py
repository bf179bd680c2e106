"""One side refuses the other, and a second fact says why."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import CERTIFICATE, UNKNOWN_ARGUMENT, UNLIKE


def refused(signals: Sequence[Signal]) -> None:
    """Changes signals: what would be a condition is what ended it.

    A clock that is off, or not kept, and certificates that are refused: by that clock they are not valid yet, or no more. Versions that differ, and engines
    that refuse each other: these are of one job, however far each of them came. Two images, and arguments that one does not know.
    """
    for kind, cause in (
        (CERTIFICATE, "clock-skew"),
        (UNLIKE, "version-mismatch"),
        (UNKNOWN_ARGUMENT, "version-mismatch"),
    ):
        told = [signal for signal in signals if signal.kind == kind]
        for signal in signals if told else ():
            if signal.cause == cause and signal.condition:
                signal.says, signal.condition = max(signal.says, Says.STRONG), False
                signal.order = min(signal.order, min(one.order for one in told) - 0.5)
                signal.summary += f", and {told[0].summary}"
