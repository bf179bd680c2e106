"""Time left of a stage, from a progress bar in the log (tqdm): `25/67 [00:10<00:17, 2.4it/s]`."""

from __future__ import annotations

import re
from typing import Optional, Sequence, Tuple

_BAR = re.compile(r"(\d+)/(\d+) \[(?:\d+:)*\d+<((?:\d+:)*\d+)")


def remaining(lines: Sequence[str]) -> Optional[Tuple[float, str]]:
    """`(seconds left, "25 of 67")` of the last bar that is not full; None where there is none."""
    for line in reversed(list(lines)[-5:]):
        bars = _BAR.findall(line)
        if not bars:
            continue
        done, total, left = bars[-1]
        if int(done) >= int(total):
            return None
        seconds = 0.0
        for part in left.split(":"):
            seconds = seconds * 60 + int(part)
        return seconds, f"{done} of {total}"
    return None
