"""Lines that a running job prints again and again with other numbers: steps of a training, what a server answered.

Of many in a row only the first ones, the last ones, and those where the count of steps goes back say something; the others are passed over. What they
say is handed to the readers before any other line that somebody asks for, so that the readers see everything in order.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

ENDS = 3  # lines of a kind at both ends of a row that are read: so many steps show a training at work
BACK_LIMIT = 64  # places of one row where the count goes back; the last ones are kept
KINDS_LIMIT = 2048

_STEP = re.compile(rb"\b(?:[Ss][Tt][Ee][Pp][Ss]?|[Ii][Tt][Ee][Rr]\w*)\W{1,12}(\d{1,18})")
_IDLE = b" throughput: 0.0 "

Place = tuple[float, int, bytes]  # order among all lines, number in its source, the line


class Kind:
    """One kind of line."""

    def __init__(self, raw: bytes) -> None:
        self._counts = _STEP.search(raw) is not None
        self._number = 0
        self._last: deque[Place] = deque(maxlen=ENDS)
        self._first: list[Place] = []
        self._back: deque[Place] = deque(maxlen=2 * BACK_LIMIT)
        self.seen = 0

    def add(self, place: Place) -> None:
        if self._counts:
            step = _STEP.search(place[2])
            number = int(step[1]) if step else 0
            if number < self._number:
                self._back.extend((self._last[-1], place) if self._last else (place,))
            self._number = number
        self.seen += 1
        if self.seen <= ENDS:
            self._first.append(place)
        self._last.append(place)

    def take(self) -> set[Place]:
        """What is to be read of the row, which is over."""
        places = {*self._first, *self._back, *self._last}
        self.seen = 0
        self._first.clear()
        self._back.clear()
        self._last.clear()
        return places


class Routine:
    """The kinds of line that are known, and the row that is being read."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, Kind] = {}
        self._row: list[Kind] = []

    def know(self, raw: bytes, shape: bytes) -> None:
        """Lines of that shape are of this kind from now on."""
        if len(self._kinds) < KINDS_LIMIT:
            self._kinds.setdefault(_key(raw, shape), Kind(raw))

    def takes(self, raw: bytes, shape: bytes, number: int, order: float) -> bool:
        """Whether the line is of a known kind; then it is kept until the row is over."""
        kind = self._kinds.get(_key(raw, shape)) if self._kinds else None
        if kind is None:
            return False
        if not kind.seen:
            self._row.append(kind)
        kind.add((order, number, raw))
        return True

    def over(self) -> Iterator[Place]:
        """The row is over: what is to be read of it, in order."""
        if self._row:
            places: set[Place] = set().union(*(kind.take() for kind in self._row))
            self._row = []
            yield from sorted(places)


def _key(raw: bytes, shape: bytes) -> bytes:
    """A server that has nothing to do prints the same line as one that answers, but for a number."""
    return shape + b"0" if _IDLE in raw else shape
