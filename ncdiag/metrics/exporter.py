"""All sources of one exporter, each behind its own fence: one that breaks or hangs is a 0 in `ncdiag_up`, and the others are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ncdiag.metrics.sheet import NotRead, Sheet

LIMIT_S = 8.0
"""Prometheus waits 10 s by default."""


@dataclass
class Source:
    """What is read at every scrape."""

    name: str
    read: Callable[[Sheet], None]
    """Fills a sheet; raises NotRead, having added what could be read all the same."""
    target: str = ""
    _busy: _Reading | None = field(default=None, repr=False)

    def start(self) -> _Reading:
        """Begins to read, unless the last reading still hangs."""
        if self._busy is None or self._busy.done.is_set():
            self._busy = _Reading(self.read)
        return self._busy


class _Reading:
    def __init__(self, read: Callable[[Sheet], None]) -> None:
        self.sheet, self.why, self.done = Sheet(), "", threading.Event()
        self._read = read
        threading.Thread(target=self._run, daemon=True, name="ncdiag-source").start()

    def _run(self) -> None:
        try:
            self._read(self.sheet)
        except NotRead as error:
            self.why = str(error)
        except Exception as error:  # the fence
            self.sheet, self.why = Sheet(), f"{type(error).__name__}: {error}"
        self.done.set()


class Exporter(Collector):
    """A collector of prometheus-client over sources."""

    def __init__(self, sources: list[Source], limit_s: float = LIMIT_S) -> None:
        self._sources, self._limit_s = sources, limit_s
        self._lock = threading.Lock()

    def describe(self) -> list[Metric]:
        """Nothing: what there is shows itself at the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            sheet = self._sheet()
        yield from sheet.families()

    def _sheet(self) -> Sheet:
        sheet = Sheet()
        readings = [(source, source.start()) for source in self._sources]
        end = time.monotonic() + self._limit_s
        for source, reading in readings:
            why = f"no answer within {self._limit_s:g} s"
            if reading.done.wait(max(0.0, end - time.monotonic())):
                why = reading.why
                sheet.take(reading.sheet)
            sheet.add("ncdiag_up", not why, source=source.name, target=source.target)
            if why:
                sheet.add("ncdiag_source_down", 1, source=source.name, target=source.target, reason=why[:200])
        return sheet
