"""Sources that end with errors of which nothing is known: beside them, what another source shows at work is no more than that."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ncdiag.explain import Says, Signal

_ERRORS = (b"ERROR", b"FATAL", b"CRITICAL", b"Traceback (most recent", b"Exception: ")
"""How loggers and interpreters call what is wrong. Facts of hosts count `errors`, in small letters."""
NAMED_LIMIT = 3  # sources that are named


class Unexplained:
    """Which sources hold errors in their last lines."""

    def __init__(self) -> None:
        self._sources: set[str] = set()

    def look(self, source: str, end: bytes) -> None:
        """`end`: the last lines of a source, or all of a short one."""
        if any(word in end for word in _ERRORS):
            self._sources.add(source)

    def weigh(self, signals: Sequence[Signal], known: Collection[str]) -> None:
        """Changes what says that a job is well. `known`: sources of which a rule or a reader has understood something."""
        unread = sorted(self._sources.difference(known))
        for signal in signals:
            if unread and signal.cause == "healthy" and signal.says > Says.HINT:
                more = f" and {len(unread) - NAMED_LIMIT} more" if len(unread) > NAMED_LIMIT else ""
                signal.says = Says.HINT
                signal.summary += f"; {', '.join(unread[:NAMED_LIMIT])}{more} tells of errors that are not known here"
