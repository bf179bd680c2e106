"""How long a start may take, and how much of that is left for a look at it."""

from __future__ import annotations

import time
from typing import Any

ANSWER_S = 30.0
"""How long one node may take for one look."""
LEAST_S = 6.0
"""What every look gets, also at the very end."""
LAST_S = 6.0
"""The look at which the time has run out: stacks of a few, within a few seconds."""
THOROUGH_S = 15.0
"""With less than this left a full look is a short one, so that its verdict does not come too late."""


class Limit:
    """`limit_s`: seconds since now after which it must be up; None: for ever."""

    def __init__(self, limit_s: float | None) -> None:
        self.limit_s = limit_s
        self._started = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds that are left; less than 0 when it is over."""
        return float("inf") if self.limit_s is None else self.limit_s - (time.monotonic() - self._started)

    @property
    def over(self) -> bool:
        return self.left_s <= 0

    def lift(self) -> None:
        """It is up: no time limit any more."""
        self.limit_s = None

    def of_look(self, full: bool) -> dict[str, Any]:
        """What a look is told: how long its answers may take, and whether a full one has to be short."""
        short = full and self.left_s < THOROUGH_S
        answer_s = LAST_S if short else min(ANSWER_S, max(self.left_s, LEAST_S))
        return {"answer_s": answer_s, "short": short}
