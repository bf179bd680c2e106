"""The beginning of a source and its last lines, as blocks of lines go by."""

from __future__ import annotations

from dataclasses import dataclass

from ncdiag.logs.stamps import Stamp, stamp

EDGE = 400  # bytes of the beginning and of the end in which a time is looked for
TAIL = 16 << 10  # bytes of the last lines, at least, where there are as many


@dataclass
class Margins:
    """Of one source."""

    blocks: int = 0
    """Seen so far."""
    first: int = 1
    """Number of the first line of `end`."""
    begin: bytes = b""
    """The first bytes."""
    end: bytes = b""
    """The last lines, complete, without the last newline."""

    def add(self, first: int, block: bytes) -> None:
        """Complete lines, the first of which has number `first`."""
        self.blocks += 1
        self.begin = self.begin or block[:EDGE]
        if self.end and len(block) < TAIL:
            kept = self.end[-TAIL:].partition(b"\n")[2] if len(self.end) > TAIL else self.end
            self.first, self.end = first - 1 - kept.count(b"\n"), kept + b"\n" + block
        else:
            self.first, self.end = first, block

    def times(self) -> tuple[Stamp | None, Stamp | None]:
        """The first and the last time that the first and the last lines say."""
        first = (stamp(line) for line in self.begin.decode("utf-8", "replace").split("\n"))
        cut = self.end[-EDGE:].decode("utf-8", "replace").split("\n")[len(self.end) > EDGE :]
        last = (stamp(line) for line in reversed(cut))
        return next(filter(None, first), None), next(filter(None, last), None)
