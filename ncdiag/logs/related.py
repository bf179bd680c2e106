"""Whether an error follows from another one: the order of lines in one source, the times that they say, and the communicators that processes share.

Files do not say which of them came first, and two files may be of two runs. What none of the three decides is not known.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from ncdiag.explain import Says, Signal
from ncdiag.explain.signals import source_of
from ncdiag.logs.alive import KERNEL, Run
from ncdiag.logs.stamps import Stamp, later_s, stamp
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts

WITHIN_S = 3600.0
"""Seconds after an error in which another source's error may be its consequence: the longest usual time limits (torch 10 to 30 min, vLLM 40 min) fit in."""
ATTEMPTS_S = 2 * WITHIN_S
"""Seconds between two errors, from which on they are not taken for one attempt's."""


def follows(
    signals: Sequence[Signal], facts: NcclFacts, runs: dict[str, list[Run]], order: dict[str, float]
) -> Callable[[Signal, Signal], bool]:
    """Asks whether its first signal is known to come after its second, in the same job. `order`: source -> position of its first line."""
    times = functools.cache(lambda: _times(signals, facts))  # mostly one source is all there is, and nobody asks
    groups = _Groups(facts)
    launches = {source: [run.start for run in found if run.line is not None] for source, found in runs.items()}

    def known(later: Signal, first: Signal) -> bool:
        one, other = _place(later), _place(first)
        if one is None or other is None:
            return False
        mine, theirs = groups.of(one), groups.of(other)
        if mine and theirs and mine.isdisjoint(theirs):
            return False
        if one.source == other.source:
            start, end = (order.get(one.source, 0.0) + (item.line or 0) - 1 for item in (other, one))
            starts = launches.get(one.source, ())
            return _in_order(one, other) and bisect_right(starts, start) == bisect_right(starts, end)
        apart = _apart(one, other, times())
        if apart is None:
            return later.says is Says.CASCADE and not mine.isdisjoint(theirs)
        return 0 <= apart <= WITHIN_S

    return known


def hours_apart(
    signals: Sequence[Signal], facts: NcclFacts, spans: Mapping[str, tuple[Stamp | None, Stamp | None]]
) -> Callable[[Signal, Signal], bool]:
    """Asks whether two signals of two programs' logs are known to be further apart than any time limit: they are of two attempts.
    `spans`: source -> its first and last time. A kernel's clock may be of another time zone than a container's."""
    times = functools.cache(lambda: _times(signals, facts))

    def between(signal: Signal) -> tuple[Stamp | None, Stamp | None]:
        item = _place(signal)
        if item is None or KERNEL.search(item.text):
            return None, None
        first, last = spans.get(item.source, (None, None))
        found = _near(times(), item, after=False) or first, _near(times(), item, after=True) or last
        return found if all(one is None or one.month for one in found) else (None, None)

    def known(one: Signal, other: Signal) -> bool:
        if source_of([one]) == source_of([other]):
            return False
        mine, theirs = between(one), between(other)
        return max(_gap_s(theirs[1], mine[0]), _gap_s(mine[1], theirs[0])) > ATTEMPTS_S

    return known


def _gap_s(end: Stamp | None, begin: Stamp | None) -> float:
    """Seconds from an end to a begin, 0.0 where they are not known."""
    return (later_s(begin, end) or 0.0) if begin is not None and end is not None else 0.0


def _in_order(later: Evidence, first: Evidence) -> bool:
    """In one source. What was pasted or flushed late says its own time."""
    one, other = stamp(later.text), stamp(first.text)
    apart = later_s(one, other) if one is not None and other is not None else None
    return apart > 0 if apart is not None and abs(apart) >= 1 else (later.line or 0) > (first.line or 0)


def _place(signal: Signal) -> Evidence | None:
    item = signal.evidence[0] if signal.evidence else None
    return item if item is not None and item.line is not None else None


Times = dict[str, tuple[list[int], list[Stamp]]]
"""Source -> its lines that say a time, in order, and these times."""


def _times(signals: Sequence[Signal], facts: NcclFacts) -> Times:
    found: dict[str, dict[int, Stamp]] = {}
    for source, line, text in _said(signals, facts):
        at = stamp(text)
        if at is not None:
            found.setdefault(source, {})[line] = at
    return {source: (sorted(lines), [lines[number] for number in sorted(lines)]) for source, lines in found.items()}


def _said(signals: Sequence[Signal], facts: NcclFacts) -> Iterator[tuple[str, int, str]]:
    for signal in signals:
        yield from ((item.source, item.line, item.text) for item in signal.evidence if item.line is not None)
    for event in facts.events:
        yield event.at.source, event.at.line, event.at.text


def _apart(later: Evidence, first: Evidence, times: Times) -> float | None:
    """Seconds between two lines of two sources. A line that says no time is as late as the one before it, at least, or as the one after it, at most."""
    one = _near(times, later, after=False)
    other = _near(times, first, after=True)
    return later_s(one, other) if one is not None and other is not None else None


def _near(times: Times, item: Evidence, after: bool) -> Stamp | None:
    lines, stamps = times.get(item.source, ([], []))
    number = item.line or 0
    index = bisect_left(lines, number) if after else bisect_right(lines, number) - 1
    return stamps[index] if 0 <= index < len(lines) else None


class _Groups:
    """Which processes are of one job, as their communicators say: those that share one, and those that these share one with."""

    def __init__(self, facts: NcclFacts) -> None:
        self._parent = list(range(len(facts.processes)))
        joined = set()
        for comm in facts.communicators:
            processes = [rank.process for rank in comm.ranks]
            joined.update(processes)
            for one, other in pairwise(processes):
                self._parent[self._root(one)] = self._root(other)
        self._at = {
            (event.at.source, event.at.line): self._root(event.process)
            for event in facts.events
            if event.process in joined
        }
        self._sources: dict[str, set[int]] = {}
        for index in joined:
            for source in facts.processes[index].sources:
                self._sources.setdefault(source, set()).add(self._root(index))

    def _root(self, process: int) -> int:
        while self._parent[process] != process:
            self._parent[process] = process = self._parent[self._parent[process]]
        return process

    def of(self, item: Evidence) -> set[int]:
        """Those of the process that said a line, else of all of its source; empty where none is known."""
        at = self._at.get((item.source, item.line or 0))
        return {at} if at is not None else self._sources.get(item.source, set())
