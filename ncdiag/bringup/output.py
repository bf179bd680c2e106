"""What the command and the followed files printed: kept as lines, masked, with the time of the last one."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Iterable

from ncdiag import redact
from ncdiag.bringup.node import number_by_log
from ncdiag.model import RankState
from ncdiag.processes import logtail
from ncdiag.stages import steps

NAME = "output of the command"
HEAD, TAIL = 2000, 20_000
"""Lines that are kept of a long output: its beginning and its end."""
LINE = 4000
SHAPES = 100_000
_BAR = re.compile(r"(\d+)/(\d+) \[")


class Output:
    """Lines of both streams in the order of their arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._head: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._open = {False: b"", True: b""}
        self.grew_at = time.monotonic()
        """When the last byte came."""
        self.news_at = self.grew_at
        """When something came that had not been said before: a line that differs from all others by more than numbers ("still waiting, 20 s"),
        a progress bar that got further, or work that counts on ("epoch 0 step 5")."""
        self._shapes: dict[str, tuple[int, ...]] = {}
        """Shape of a line -> how far the work has counted that it tells of."""
        self.size = 0

    def feed(self, stderr: bool, data: bytes) -> None:
        """Bytes as they come."""
        with self._lock:
            self.grew_at, self.size = time.monotonic(), self.size + len(data)
            *lines, rest = (self._open[stderr] + data).split(b"\n")
            self._open[stderr] = rest[-LINE * 4 :]
            for line in lines:
                self._keep(line)
            if bar := _BAR.findall(rest.decode("utf-8", "replace")):
                self._is_news(f"bar {bar[-1]}", bar=True)

    def _is_news(self, line: str, bar: bool = False) -> None:
        shape, count = (line, ()) if bar else (steps.shape(line), steps.count(line))
        known = self._shapes.get(shape)
        if (known is None and len(self._shapes) < SHAPES) or (known is not None and count > known):
            self._shapes[shape] = count
            self.news_at = time.monotonic()

    def _keep(self, raw: bytes) -> None:
        line = redact.text(raw.decode("utf-8", "backslashreplace").rstrip("\r").rpartition("\r")[2][:LINE])
        if line.strip():
            self._is_news(line)
            (self._head if len(self._head) < HEAD else self._tail).append(line)

    @property
    def lines(self) -> list[str]:
        """All that is kept, with what stands in a line that is not ended yet (a progress bar)."""
        with self._lock:
            rest = [
                redact.text(raw.decode("utf-8", "backslashreplace").rpartition("\r")[2][:LINE])
                for raw in self._open.values()
                if raw.strip()
            ]
            return [*self._head, *self._tail, *rest]

    def lend(self, states: Iterable[RankState]) -> None:
        """Gives each process without a log of its own the lines that are marked as its."""
        lines = self.lines
        log = logtail.Log(NAME, tail=lines)
        for state in states:
            if not state.log_source and lines:
                whole = logtail.own_lines(log, (state.pid, state.ns_pid), shared=True)
                if (whole and len(whole) < len(lines[-logtail.LINES :])) or _one_voice(lines):
                    state.log_tail, state.log_source = whole, NAME
                    state.silent_s = round(time.monotonic() - self.grew_at, 1)
                    number_by_log(state)
                state.notes = [note for note in state.notes if "save its output to a file" not in note]


def _one_voice(lines: list[str]) -> bool:
    """Whether no line says whose it is."""
    return not any(" pid=" in line[:60] and line.startswith("(") for line in lines)
