"""How far a line says that work has counted: `epoch 0 step 5 loss 2.1`, `12/100 batches`."""

from __future__ import annotations

import re
from typing import Optional, Sequence, Tuple

_COUNT = re.compile(
    r"(?i)\b(?:steps?|iter\w*|epochs?|batch(?:es)?|samples?|tokens?|shards?|layers?|chunks?|files?)\b[^\w\n]{0,12}(\d{1,18})\b"
    r"|\b(\d{1,9}) ?/ ?\d+"
)
_WAITS = re.compile(r"(?i)\b(?:wait|retr|attempt|time|still\b|not\b|no\b|fail|error|connect|heartbeat|unreach|HTTP/)")
"""Such a line counts its tries, or a server's answers, whatever the work does."""
_NUMBER = re.compile(r"[\d.:]+")
LINE = 4000


def count(line: str) -> Tuple[int, ...]:
    """The numbers that count work, in the order of the line; empty where it counts none."""
    line = line[:LINE]
    if _WAITS.search(line):
        return ()
    return tuple(int(first or second) for first, second in _COUNT.findall(line))


def shape(line: str) -> str:
    """The line without its numbers: what lines of one kind have in common."""
    return _NUMBER.sub("#", line)


def counted_on(lines: Sequence[str]) -> Optional[str]:
    """The last line that counts, where an earlier one of its kind counted less; None where there is none."""
    last = next((line for line in reversed(lines) if count(line)), None)
    if last is None:
        return None
    kind, far = shape(last), count(last)
    return last if any(shape(line) == kind and count(line) < far for line in lines) else None
