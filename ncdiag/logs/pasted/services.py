"""`systemctl status UNIT` and `systemctl is-active`: which services run. Knows where a service that does not run is *not* the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Signal
from ncdiag.logs.model import Line

_UNIT = re.compile(r"^[\s●×○*]*(?P<unit>[\w@.-]+)\.service(?: - |$)")
_ACTIVE = re.compile(r"^\s*Active: (?P<state>\w+) \((?P<detail>[\w-]+)")
LINES = 12  # of a status up to its `Active:` line


class Services:
    """The last state of each unit."""

    triggers = (".service",)

    def __init__(self) -> None:
        self.running: dict[str, Line] = {}
        self._unit = ""
        self._left = 0

    def take(self, line: Line) -> bool:
        unit, active = _UNIT.match(line.text), _ACTIVE.match(line.text)
        if unit:
            self._unit, self._left = unit["unit"], LINES
            return True
        self._left -= 1
        if active and self._unit:
            if active["state"] == "active" and active["detail"] in ("running", "exited"):
                self.running[self._unit] = line
            else:
                self.running.pop(self._unit, None)
            self._unit = ""
            return False
        return self._left > 0 and bool(self._unit)

    def end(self, source: str) -> None:
        self._unit = ""

    def signals(self) -> Iterator[Signal]:
        yield from ()
