"""`ulimit -a`, `ulimit -l` and /proc/PID/limits: whether locked memory is unlimited."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

_UNLIMITED = re.compile(r"max locked memory\s+\(kbytes, -l\)\s+unlimited|LimitMEMLOCK=infinity", re.I)
_LIMITED = re.compile(
    r"max locked memory\s+\(kbytes, -l\)\s+\d{1,7}\b|max locked memory\s+\d{1,10}\s|LimitMEMLOCK(?:Soft)?=\d{1,10}$",
    re.I,
)
_ASKED = re.compile(r"ulimit -l\b[^|;&]*$")
SMALL = 16 << 20  # KiB of locked memory below which it is a limit that NCCL may meet


class Limits:
    """Knows where a limit is *not* the cause, and the bare number that `ulimit -l` prints; other small limits are a rule's matter."""

    triggers = ("ax locked memory", "ulimit -l", "LimitMEMLOCK")

    def __init__(self) -> None:
        self._unlimited: Line | None = None
        self._limited = False
        self._small: Line | None = None
        self._asked = False

    @property
    def unlimited(self) -> Line | None:
        """The line that says so, where none says that it is limited elsewhere: a login shell is not the job."""
        return None if self._limited else self._unlimited

    def take(self, line: Line) -> bool:
        text = line.text.strip()
        if (
            (self._asked and text == "unlimited")
            or _UNLIMITED.search(text)
            or re.match(r"(?i)max locked memory\s+unlimited", text)
        ):
            self._unlimited = line
        elif self._asked and text.isdecimal() and int(text) < SMALL:
            self._limited, self._small = True, line
        elif _LIMITED.search(text):
            self._limited = True
        self._asked = _ASKED.search(text) is not None
        return self._asked

    def end(self, source: str) -> None:
        self._asked = False

    def signals(self) -> Iterator[Signal]:
        if self._small is not None:
            yield Signal(
                "memlock-limit",
                Says.STRONG,
                f"locked memory is limited to {self._small.text.strip()} KiB",
                [self._small.evidence()],
                condition=True,
                order=self._small.order,
            )
