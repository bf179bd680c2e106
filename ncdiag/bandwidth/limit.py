"""The time that a person gives to a whole run, and what is left of it for each stage."""

from __future__ import annotations

import time

LAST_WORDS_S = 2.0
"""What ranks that are ended when the time is up get for their last words, before their agents are let go."""


class Limit:
    """`given_s`: seconds from now on, for all stages together; None: each stage has only a limit of its own."""

    def __init__(self, given_s: float | None = None) -> None:
        self.given_s = given_s
        self._began = time.monotonic()

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    def left(self, most_s: float) -> float:
        """Seconds of a stage that would take `most_s` by itself; 0 when the time is up."""
        if self.given_s is None:
            return most_s
        return max(min(most_s, self.given_s - self.spent_s), 0.0)

    def short_of(self, needed_s: float) -> str:
        """Why a stage that may take `needed_s` does not begin any more, in words; empty: it may."""
        left = self.left(needed_s)
        if left >= needed_s:
            return ""
        return f"{left:.0f} s are left of --timeout {self.given_s:g}, and it may take {needed_s:g} s"
