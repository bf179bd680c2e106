"""Progress bars: whose grew, whose stands, and whose came to its end."""

from __future__ import annotations

import re

from ncdiag.explain import Signal
from ncdiag.logs.alive import trains
from ncdiag.logs.bars import Bar, Bars
from ncdiag.logs.model import Line
from ncdiag.logs.starts.slow import slow_start

BAR = re.compile(
    r"(?P<what>[\w ,()-]{0,60}?):?\s+(?P<percent>\d{1,3})%(?: Completed)? ?\|.*?(?P<done>\d[\d.]*[kKMGT]?)/(?P<all>\d[\d.]*[kKMGT]?)"
)

_ELAPSED = re.compile(r"\[(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d\d)<")

_PREPARES = re.compile(
    r"(?i)token|\bmap|filter|load|download|fetch|warm|compil|captur|split|extract|pars|process(?!ed prompts)|pack|convert|quanti|index|cach|saving|merg|tun(?:e|ing)"
)

GREW = 2  # times that a bar grew, to be work that moves

_ORIGIN = re.compile(r"\[pod/([^\]\s]+)\]|(?<![\w.-])([A-Za-z][\w.-]{0,60}) +\|(?= )|ip=([\w.:]+)\)|^ *(\d{1,6}): ")


def origin(line: Line) -> str:
    """Which node, pod or task a line comes from, as far as its prefix says so; else its source."""
    return ":".join(
        [line.source, *(group for match in _ORIGIN.finditer(line.shown[:200]) for group in match.groups() if group)]
    )


def _seconds(elapsed: re.Match[str]) -> int:
    return int(elapsed["h"] or 0) * 3600 + int(elapsed["m"]) * 60 + int(elapsed["s"])


class Progress:
    """Bars of loading and of other work before the common one, of all sources."""

    def __init__(self) -> None:
        self._last: tuple[int, Line, int] | None = None
        """The progress bar that stands last: percent, line, and how often it grew."""
        self._found = Bars()
        self._loading: dict[str, tuple[int, Line]] = {}
        """Origin of a log line -> the last it said of its loading: percent, line."""

    def take(self, line: Line) -> None:
        bar = None if trains(line.text) else BAR.search(line.text)
        if bar:
            percent, grew = int(bar["percent"]), 0
            if self._last is not None and self._last[1].source == line.source:
                grew = self._last[2] + (percent > self._last[0]) if percent >= self._last[0] else 0
            self._last = (percent, line, grew)
            lasted = _ELAPSED.search(line.text)
            if lasted:
                self._found.add(line, (bar["what"].strip(), bar["all"]), percent, _seconds(lasted))
            if len(self._loading) < 10_000:
                self._loading[origin(line)] = (percent, line)
        elif "Loading weights took" in line.text or "Load weight end" in line.text:
            self._loading[origin(line)] = (100, line)

    def uneven(self) -> tuple[Line, Line] | None:
        """A node that still loads while another one has loaded: their last lines about it."""
        slow = [line for percent, line in self._loading.values() if percent < 100]
        fast = [line for percent, line in self._loading.values() if percent >= 100]
        return (slow[0], fast[0]) if slow and fast else None

    def preparing(self) -> tuple[int, float, Line] | None:
        """A bar of work before the common work that grew and has not come to its end: percent, seconds, line."""
        if self._last is None or self._last[2] < GREW or self._last[0] >= 100:
            return None
        percent, line, _ = self._last
        bar, lasted = BAR.search(line.text), _ELAPSED.search(line.text)
        if bar is None or lasted is None or not _PREPARES.search(bar["what"]):
            return None
        return percent, _seconds(lasted), line

    def behind(self) -> tuple[Bar, Bar] | None:
        """Work of one process that grew and has not come to its end, while the same of another one has."""
        return next(((late, done) for late, done in self._found.behind() if late.grew >= GREW), None)

    def moving(self) -> Signal | None:
        """A progress bar that grew and is the last that was heard."""
        if self._last is None or self._last[2] < 1 or self._last[0] >= 100:
            return None
        percent, line, _ = self._last
        return slow_start(f"a progress bar stands at {percent}% and was growing when this ends", line)
