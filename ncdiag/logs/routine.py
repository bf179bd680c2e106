"""Lines that a running job prints again and again with other numbers: steps of a training, states of a bar, what a server answered.

Of many in a row only the first ones, the last ones, and those where the count of steps goes back or a bar another percentage say something; the others
are passed over. What they say is handed to the readers before any other line that somebody asks for, so that the readers see everything in order.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from ncdiag.logs.alive import trains
from ncdiag.logs.steps import step

ENDS = 3  # lines of a kind at both ends of a row that are read: so many steps show a training at work
BACK_LIMIT = 64  # places of one row where the count goes back; the last ones are kept
KINDS_LIMIT = 2048
GROWTHS_LIMIT = 512  # states of a row's bars that differ from the one before in more than their counts

_IDLE = b" throughput: 0.0 "
_BAR = re.compile(
    rb"(?P<what>[\w ,()-]{0,60}?):?\s+(?P<percent>\d{1,3})%(?: Completed)? ?\|.*?\d[\d.]*[kKMGT]?/(?P<all>\d[\d.]*[kKMGT]?)"
)
"""As in `starts.progress`."""
_ELAPSED = re.compile(rb"\[(?:(\d+):)?(\d+):(\d\d)<")
_DRAWN = b"#=>*- \xe2\x96" + bytes(range(0x88, 0x90))
"""What a bar is drawn with: it grows."""

Place = tuple[float, int, bytes]  # order among all lines, number in its source, the line


def is_bar(raw: bytes) -> bool:
    """Whether a line is a bar's state, and no step of a training with a bar."""
    return _BAR.search(raw) is not None and not trains(raw.decode("utf-8", "replace"))


class Kind:
    """One kind of line."""

    def __init__(self, raw: bytes) -> None:
        self.is_bar = is_bar(raw)
        self._counts = not self.is_bar and step(raw) is not None
        self._number = 0
        self._last: deque[Place] = deque(maxlen=ENDS)
        self._first: list[Place] = []
        self._back: deque[Place] = deque(maxlen=2 * BACK_LIMIT)
        self._grown: list[Place] = []
        self.seen = 0

    def add(self, place: Place) -> None:
        if self._counts:
            number = step(place[2]) or 0
            if number < self._number:
                self._back.extend((self._last[-1], place) if self._last else (place,))
            self._number = number
        self.seen += 1
        if self.seen <= ENDS:
            self._first.append(place)
        self._last.append(place)

    def grow(self, place: Place) -> None:
        """A bar that is not the one before, or came further than it."""
        self._grown.append(place)

    def take(self) -> set[Place]:
        """What is to be read of the row, which is over."""
        places = {*self._first, *self._back, *self._grown, *self._last}
        self.seen = 0
        self._first.clear()
        self._back.clear()
        self._grown.clear()
        self._last.clear()
        return places


class Routine:
    """The kinds of line that are known, and the row that is being read."""

    def __init__(self) -> None:
        self._kinds: dict[bytes, Kind] = {}
        self._row: list[Kind] = []
        self._bar: tuple[bytes, bytes, bytes] | None = None
        """Label, percentage and size of the row's last bar."""
        self._elapsed = 0
        self._growths = 0

    def know(self, raw: bytes, shape: bytes) -> None:
        """Lines of that shape are of this kind from now on."""
        if len(self._kinds) < KINDS_LIMIT:
            self._kinds.setdefault(_key(raw, shape), Kind(raw))

    def takes(self, raw: bytes, shape: bytes, number: int, order: float) -> bool:
        """Whether the line is of a known kind; then it is kept until the row is over."""
        kind = self._kinds.get(_key(raw, shape)) if self._kinds else None
        if kind is None:
            return False
        place = (order, number, raw)
        if kind.is_bar and not self._follow(kind, place):
            return False
        if not kind.seen:
            self._row.append(kind)
        kind.add(place)
        return True

    def _follow(self, kind: Kind, place: Place) -> bool:
        """Whether a bar can be passed over. Where it says more than that it goes on, its place is kept; and too many of these are no row."""
        match, elapsed = _BAR.search(place[2]), _ELAPSED.search(place[2])
        if match is None:
            return False
        bar = (match["what"], match["percent"], match["all"])
        seconds = int(elapsed[1] or 0) * 3600 + int(elapsed[2]) * 60 + int(elapsed[3]) if elapsed else 0
        if bar != self._bar or seconds < self._elapsed:
            if self._growths >= GROWTHS_LIMIT:
                return False
            self._growths += 1
            kind.grow(place)
        self._bar, self._elapsed = bar, seconds
        return True

    def over(self) -> Iterator[Place]:
        """The row is over: what is to be read of it, in order."""
        if self._row:
            places: set[Place] = set().union(*(kind.take() for kind in self._row))
            self._row, self._bar, self._elapsed, self._growths = [], None, 0, 0
            yield from sorted(places)


def _key(raw: bytes, shape: bytes) -> bytes:
    """A server that has nothing to do prints the same line as one that answers, but for a number. A bar is the same however far it is drawn."""
    if b"%|" in raw:
        return shape.translate(None, _DRAWN)
    return shape + b"0" if _IDLE in raw else shape
