"""NCCL versions as tuples that compare: (2, 27, 3)."""

from __future__ import annotations

import re
from typing import Optional, Tuple

Version = Tuple[int, int, int]

#: The newest release whose rules were read (source tree v2.30.7-1). Newer ones are treated like it.
NEWEST_READ = (2, 30, 7)

_DOTTED = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def parse_version(text: str) -> Optional[Version]:
    """`2.27.3`, `2.27.3+cuda12.9`, `v2.27.3-1`, `2.27` or NCCL's own number (`22703`, `2804`); None for anything else.

    Source: nccl.h, NCCL_VERSION(X,Y,Z) is X*1000+Y*100+Z up to 2.8 and X*10000+Y*100+Z from 2.9.
    """
    text = text.strip()
    if text.isdecimal() and len(text) in (4, 5):
        number = int(text)
        unit = 1000 if len(text) == 4 else 10000
        return number // unit, number % unit // 100, number % 100
    match = _DOTTED.search(text)
    if match is None:
        return None
    return int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)


def dotted(version: Version) -> str:
    """(2, 27, 3) as `2.27.3`."""
    return ".".join(str(part) for part in version)
