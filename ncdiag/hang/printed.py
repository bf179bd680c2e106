"""Exceptions that a process printed before it stopped moving: one that was caught, or ended a thread, is often why."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from ncdiag.hang.claims import names
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Printed

AFTER = 20
"""Lines after it from which on an exception is an old story."""
FRAMES = 2
"""Lines of its innermost frame that are shown."""
_HEAD = "Traceback (most recent call last):"
_IN_FRAME = re.compile(r"\s|$|\.\.\.|During handling|The above exception")


def printed(scene: Scene, culprits: Sequence[View]) -> List[Printed]:
    """The last exception in the log of each process, those of `culprits` first; what several processes write to one file is told once."""
    told: Dict[Tuple[str, Tuple[str, ...]], List[View]] = {}
    found: Dict[Tuple[str, Tuple[str, ...]], int] = {}
    for view in sorted(scene.views, key=lambda view: view not in culprits):
        hit = last_exception(view.state.log_tail) if view.state.state != "gone" else None
        if hit is not None and hit[1] <= AFTER:
            key = (view.state.log_source, tuple(hit[0]))
            told.setdefault(key, []).append(view)
            found[key] = hit[1]
    return [
        Printed(
            names(views) if len(views) == 1 else f"one of {names(views)}", source, list(lines), found[source, lines]
        )
        for (source, lines), views in told.items()
    ]


def last_exception(lines: Sequence[str]) -> Optional[Tuple[List[str], int]]:
    """(the line before it, its innermost frame and what it says; how many lines follow); None where there is none."""
    start = next((place for place in range(len(lines) - 1, -1, -1) if lines[place].endswith(_HEAD)), None)
    if start is None:
        return None
    mark = lines[start][: -len(_HEAD)]
    body = [line[len(mark) :] if line.startswith(mark) else line for line in lines[start + 1 :]]
    end = next((place for place, line in enumerate(body) if not _IN_FRAME.match(line)), None)
    if end is None:
        return None
    frame = next((place for place in range(end - 1, -1, -1) if body[place].lstrip().startswith("File ")), end)
    before = [lines[start - 1]] if start and _says_it(lines[start - 1]) else []
    return [*before, *(line.strip() for line in body[frame : min(frame + FRAMES, end)]), body[end]], len(body) - end - 1


def _says_it(line: str) -> bool:
    """Whether the line above it is what the program said of it (logging.exception)."""
    return bool(re.search(r"(?i)error|exception|fail|cannot|could not|Traceback|warn|retr|critical", line))
