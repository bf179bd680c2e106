"""The beginning of a source and its last lines, as blocks of lines go by."""

from __future__ import annotations

from dataclasses import dataclass

TAIL = 16 << 10  # bytes of the last lines, at least, where there are as many


@dataclass
class Margins:
    """Of one source."""

    blocks: int = 0
    """Seen so far."""
    first: int = 1
    """Number of the first line of `end`."""
    end: bytes = b""
    """The last lines, complete, without the last newline."""

    def add(self, first: int, block: bytes) -> None:
        """Complete lines, the first of which has number `first`."""
        self.blocks += 1
        if self.end and len(block) < TAIL:
            kept = self.end[-TAIL:].partition(b"\n")[2] if len(self.end) > TAIL else self.end
            self.first, self.end = first - 1 - kept.count(b"\n"), kept + b"\n" + block
        else:
            self.first, self.end = first, block
