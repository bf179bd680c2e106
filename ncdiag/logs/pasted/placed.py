"""Which machine a pod or container runs on: `kubectl get pods -o wide`, `docker inspect`, `docker ps`.

Source: kubectl's columns, Kubernetes 1.20 to 1.34; docker's JSON and table: one answer is of one daemon, and so of one machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ncdiag.explain import Signal
from ncdiag.logs.model import Line

_HEAD = re.compile(r"^(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\b.*?(?<!NOMINATED )\bNODE\b")
_INSPECTED = re.compile(r'^\s*"Hostname": "(?P<name>[\w.-]{1,64})"')
_TABLE = re.compile(r"^CONTAINER ID\s+IMAGE\s")
_ROW = re.compile(r"^(?P<name>[0-9a-f]{12})\s")
PLACES_LIMIT = 10_000


class Place(NamedTuple):
    machine: str
    """What tells it from others; a name where there is one."""
    named: bool
    what: str
    """`pods` or `containers`."""
    line: Line


class PlacedPods:
    """Pods by their names, which are their host names."""

    triggers = ("READY",)

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._columns: tuple[int, int] | None = None
        """Where the name and the node begin."""

    def take(self, line: Line) -> bool:
        text = line.text
        head = _HEAD.match(text)
        if head:
            self._columns = (
                text.index("NAME ") if text.startswith("NAME ") else text.index(" NAME ") + 1,
                head.end() - 4,
            )
            return True
        if self._columns is None or " Running " not in text:
            self._columns = None
            return False
        name, node = (text[at:].split(maxsplit=1)[:1] for at in self._columns)
        before = text[self._columns[1] - 1 : self._columns[1]]
        if name and node and before == " " and len(self.places) < PLACES_LIMIT:
            self.places[name[0]] = Place(node[0], True, "pods", line)
        return True

    def end(self, source: str) -> None:
        self._columns = None

    def signals(self) -> Iterator[Signal]:
        yield from ()


class PlacedContainers:
    """Docker's containers by their host names; without one that is set it is the beginning of the container's number."""

    triggers = ('"Hostname": ', "CONTAINER ID")

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._answer = ""
        """The one that is being read."""
        self._table = False

    def take(self, line: Line) -> bool:
        text = line.text
        found = _INSPECTED.match(text)
        if _TABLE.match(text):
            self._answer, self._table = f"{line.source}:{line.number}", True
            return True
        if found and (self._table or not self._answer):
            self._answer, self._table = f"{line.source}:{line.number}", False
        row = found or (_ROW.match(text) if self._table else None)
        if row and len(self.places) < PLACES_LIMIT:
            self.places[row["name"]] = Place(self._answer, False, "containers", line)
        if not row and (self._table or text.startswith("]")):
            self._answer, self._table = "", False
        return bool(self._answer)

    def end(self, source: str) -> None:
        self._answer, self._table = "", False

    def signals(self) -> Iterator[Signal]:
        yield from ()
