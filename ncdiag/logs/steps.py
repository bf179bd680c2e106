"""The step that a line of a training says: `iteration 120/5000`, `step: 12`, `'iter': 7`."""

from __future__ import annotations

import re

_STEP = r"\b(?:[Ss][Tt][Ee][Pp][Ss]?|[Ii][Tt][Ee][Rr]\w*)\W{1,12}(\d{1,18})(?!\d)"
_TEXT, _RAW = re.compile(_STEP), re.compile(_STEP.encode())


def step(line: str | bytes) -> int | None:
    """None where the line says none."""
    match = _RAW.search(line) if isinstance(line, bytes) else _TEXT.search(line)
    return int(match[1]) if match else None
