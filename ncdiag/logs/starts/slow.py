"""`slow-not-hung`, as a start says it."""

from __future__ import annotations

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line, speaker

_CAME_UP = "nothing has to be mended: it came up. A next start is shorter where the compile caches (~/.cache/vllm, TRITON_CACHE_DIR) and the weights lie on a local disk that outlives the container"


def slow_start(summary: str, line: Line, ready: bool = False) -> Signal:
    return Signal(
        "slow-not-hung",
        Says.STRONG,
        summary,
        [line.evidence()],
        speaker(line.shown),
        condition=True,
        order=line.order,
        remedy=_CAME_UP if ready else "",
    )
