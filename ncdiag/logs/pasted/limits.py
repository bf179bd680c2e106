"""`ulimit -a`, `ulimit -l` and /proc/PID/limits: whether locked memory is unlimited."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Signal
from ncdiag.logs.model import Line

_UNLIMITED = re.compile(r"max locked memory\s+\(kbytes, -l\)\s+unlimited|Max locked memory\s+unlimited", re.I)
_ASKED = re.compile(r"ulimit -l\b[^|;&]*$")


class Limits:
    """Only knows that a limit is *not* the cause; a small limit is a rule's matter."""

    triggers = ("ax locked memory", "ulimit -l")

    def __init__(self) -> None:
        self.unlimited: Line | None = None
        self._asked = False

    def take(self, line: Line) -> bool:
        if (self._asked and line.text.strip() == "unlimited") or _UNLIMITED.search(line.text):
            self.unlimited = line
        self._asked = _ASKED.search(line.text) is not None
        return self._asked

    def end(self, source: str) -> None:
        self._asked = False

    def signals(self) -> Iterator[Signal]:
        return iter(())
