"""The error lines that are kept: each once a process, with the number of times it was said."""

from __future__ import annotations

from typing import Dict, List, Tuple

from . import events
from .lines import speaker, time_of
from .log_facts import TEXT_LIMIT, Event
from .log_state import Thread
from .places import At, line

EVENTS_LIMIT = 20_000


class EventLog:
    """Events in order of appearance, with the thread that said each."""

    def __init__(self) -> None:
        self.found: List[Tuple[Event, Thread]] = []
        self.left_out = 0  # beyond EVENTS_LIMIT
        self._known: Dict[Tuple[object, ...], Event] = {}

    def add(self, thread: Thread, head: bytes, level: str, raw: bytes, at: At) -> bool:
        """Keep an error line, or count it where this process said it before. False when the line is none."""
        message = raw[: 4 * TEXT_LIMIT].decode("utf-8", "replace").strip()[: 2 * TEXT_LIMIT]
        found = events.read(message, level)
        if found is None:
            return False
        kind, fields, secondary = found
        key = (id(thread.process), kind, level, events.identity(fields, message))
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            known.last_line = at[1]
            return True
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
