"""`ulimit -a`, `ulimit -l` (here, or on every node of a launcher) and /proc/PID/limits: whether locked memory is unlimited."""

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
_ANSWER = re.compile(
    r"(?:(?P<node>[\w.-]{1,253})\s*:\s*|\[\d+,\d+\]<std\w+>:\s*|\d+:\s*)?(?P<limit>unlimited|\d{1,15})"
)
_NAME = re.compile(r"[A-Za-z][\w.-]{0,252}:?")
"""The host of the next answer."""
SMALL = 16 << 20  # KiB of locked memory below which it is a limit that NCCL may meet


class Limits:
    """Knows where a limit is *not* the cause, and the bare number that `ulimit -l` prints; other small limits are a rule's matter."""

    triggers = ("ax locked memory", "ulimit -l", "LimitMEMLOCK")

    def __init__(self) -> None:
        self._unlimited: Line | None = None
        self._limited = False
        self._small: tuple[str, str, Line] | None = None
        """Node (or ""), limit, line."""
        self._asked, self._node = False, ""

    @property
    def unlimited(self) -> Line | None:
        """The line that says so, where none says that it is limited elsewhere: a login shell is not the job."""
        return None if self._limited else self._unlimited

    def take(self, line: Line) -> bool:
        text = line.text.strip()
        if self._asked and self._answered(text, line):
            return True
        if _UNLIMITED.search(text) or re.match(r"(?i)max locked memory\s+unlimited", text):
            self._unlimited = line
        elif _LIMITED.search(text):
            self._limited = True
        self._asked, self._node = _ASKED.search(text) is not None, ""
        return self._asked

    def _answered(self, text: str, line: Line) -> bool:
        """Whether the line belongs to the answer: of this shell, or of each node that a launcher asked, whose name may stand before it."""
        answer = _ANSWER.fullmatch(text)
        if answer is None:
            self._node = text.rstrip(":") if _NAME.fullmatch(text) else ""
            return bool(self._node)
        if answer["limit"] == "unlimited":
            self._unlimited = line
        elif int(answer["limit"]) < SMALL:
            self._limited = True
            self._small = self._small or (answer["node"] or self._node, answer["limit"], line)
        self._node = ""
        return True

    def end(self, source: str) -> None:
        self._asked, self._node = False, ""

    def signals(self) -> Iterator[Signal]:
        if self._small is not None:
            node, limit, line = self._small
            yield Signal(
                "memlock-limit",
                Says.STRONG,
                f"locked memory is limited to {limit} KiB" + (f" on {node}" if node else ""),
                [line.evidence()],
                {"node": node} if node else {},
                condition=True,
                order=line.order,
            )
