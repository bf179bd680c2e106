"""What a log alone says of how a start came out: it is up, it has failed, or neither yet (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.logs import endings
from ncdiag.logs.model import bare
from ncdiag.stages import stage_of_log_line

ENDED_S, RAISED_S = 3.0, 30.0
"""Seconds without a line after which a line that says that it has ended counts, and an exception at the very end, which may have been caught."""
LAST = 4
"""Lines at the end among which such an exception stands; clean-up may print something after it."""
_ENDED = re.compile("|".join((endings.ENGINE, endings.LAUNCHER, endings.PROCESS, endings.ARGUMENTS)))
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)(?::|$)")
_TRACEBACK = "Traceback (most recent call last)"


def concluded(lines: Sequence[str], silent_s: float) -> str:
    """`ready`, `failed`, or "" where it goes on. `silent_s`: how long nothing was added to the log. The last start in the log counts."""
    stages: set[str] = set()
    raised = False
    for line in reversed(lines):
        text = bare(line)
        stage = stage_of_log_line(line)
        if stage == "ready":
            return "ready"  # an exception since then may be that of one request
        if stage == "config":
            break
        if stage is not None:
            stages.add(stage)
        elif _ENDED.search(text):
            return "failed" if silent_s >= ENDED_S else ""
        raised = raised or (not stages and _TRACEBACK in text)
    return "failed" if _at_end(lines, raised, silent_s) else ""


def _at_end(lines: Sequence[str], raised: bool, silent_s: float) -> bool:
    """Whether an exception is the last that was said."""
    return raised and silent_s >= RAISED_S and any(_RAISED.search(bare(line)) for line in lines[-LAST:])
