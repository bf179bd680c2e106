"""The error lines that are kept: each once a process, with the number of times it was said."""

from __future__ import annotations

from typing import Dict, List, Tuple

from . import events
from .lines import speaker, time_of
from .log_facts import TEXT_LIMIT, Event
from .log_state import Thread
from .places import At, line

EVENTS_LIMIT = 20_000
SHAPES_LIMIT = 8192  # shapes of messages whose row is remembered


class EventLog:
    """Events in order of appearance, with the thread that said each."""

    def __init__(self) -> None:
        self.found: List[Tuple[Event, Thread]] = []
        self.left_out = 0  # beyond EVENTS_LIMIT
        self._known: Dict[Tuple[object, ...], Event] = {}
        self._rows: Dict[bytes, int] = {}  # by shape
        self._steady: Dict[Tuple[object, ...], Event] = {}  # events that were said twice, by what `events.steady` gives

    def add(self, thread: Thread, head: bytes, level: str, raw: bytes, at: At) -> bool:
        """Keep an error line, or count it where this process said it before. False when the line is none."""
        message = raw[: 4 * TEXT_LIMIT].decode("utf-8", "replace").strip()[: 2 * TEXT_LIMIT]
        index, match = events.find(message, self._row(raw, message))
        steady = events.steady(index, match)
        same = (id(thread.process), level, index, steady)
        if steady is not None and level != "DIAG" and same in self._steady:
            return self._again(self._steady[same], at)
        found = events.read(message, level, index, match)
        if found is None:
            return False
        kind, fields, secondary = found
        key = (id(thread.process), kind, level, events.identity(fields, message))
        known = self._known.get(key)
        if known is not None:
            if steady is not None and len(self._steady) < EVENTS_LIMIT:
                self._steady[same] = known
            return self._again(known, at)
        if len(self._known) >= EVENTS_LIMIT:
            self.left_out += 1
            return True
        who = speaker(head)
        facts = thread.process.facts
        code = who.code if not who.function else f"{who.code} ({who.function})"
        event = Event(
            kind, level, message[:TEXT_LIMIT], line(at), fields, facts.host, facts.pid, thread.tid, code=code,
            time=time_of(who.before), secondary=secondary, last_line=at[1],
        )  # fmt: skip
        self._known[key] = event
        self.found.append((event, thread))
        return True

    def _again(self, event: Event, at: At) -> bool:
        event.count += 1
        event.last_line = at[1]
        return True

    def _row(self, raw: bytes, message: str) -> int:
        """Storms of one error differ in numbers only: a shape is looked for in the table once."""
        shape = events.shape(raw[: 4 * TEXT_LIMIT])
        found = self._rows.get(shape)
        if found is None:
            found = events.row(message)
            if len(self._rows) < SHAPES_LIMIT:
                self._rows[shape] = found
        return found
