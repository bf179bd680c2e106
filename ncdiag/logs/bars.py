"""Progress bars of several processes in one stream: which lines are of one bar, and which of them came to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.logs.model import Line

BARS_LIMIT = 64  # of one kind and source that are told apart


@dataclass
class Bar:
    """One bar, as far as it came."""

    line: Line
    percent: int
    seconds: int
    """Since it began, as it says."""
    grew: int = 0
    """How often."""


@dataclass
class Bars:
    """Bars by source, label and size: one never goes back, so what does is another process's."""

    _found: dict[tuple[str, str, str], list[Bar]] = field(default_factory=dict)

    def add(self, line: Line, kind: tuple[str, str], percent: int, seconds: int) -> None:
        """`kind`: label and size. `seconds`: since the bar began."""
        bars = self._found.setdefault((line.source, *kind), [])
        own = max(
            (bar for bar in bars if bar.percent <= percent and bar.seconds <= seconds),
            key=lambda bar: (bar.percent, bar.seconds),
            default=None,
        )
        if own is not None:
            own.grew += percent > own.percent
            own.line, own.percent, own.seconds = line, percent, seconds
        elif len(bars) < BARS_LIMIT:
            bars.append(Bar(line, percent, seconds))

    def behind(self) -> Iterator[tuple[Bar, Bar]]:
        """Bars that have not come to their end, each with one of the same work that has."""
        for bars in self._found.values():
            done = next((bar for bar in bars if bar.percent >= 100), None)
            if done is not None:
                yield from ((bar, done) for bar in bars if bar.percent < 100)
