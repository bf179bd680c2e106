"""Sizes or checksums of weight files on several hosts: `stat -c '%s %n'`, `ls -l`, `du -b`, `sha256sum`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.pasted.prompts import asked, fronted

_ROW = re.compile(
    r"^\s*(?:[-l][rwxsStT-]{9}[.+@]?\s+\d+\s+\S+\s+\S+\s+(?P<long>\d{1,15})\s.*?|(?P<size>\d{1,15})\s+(?:\d{4}-\d\d-\d\d \S+ \S+\s+)?|(?P<sum>[0-9a-f]{32,128})\s+\*?)"
    r"(?:\S*/)?(?P<name>[\w.-]+\.(?:safetensors|bin|pt|pth|gguf))\s*$"
)
FILES_LIMIT = 10_000


class Shards:
    """What each host has of each file."""

    triggers = (".safetensors", ".bin", ".pth", ".gguf")

    def __init__(self) -> None:
        self._found: dict[str, dict[str, tuple[str, Line]]] = {}
        self._host = ""

    def take(self, line: Line) -> bool:
        host, text = fronted(line)
        where = asked(text) if not host else None
        if where is not None:
            self._host = where.host
            return True
        row = _ROW.match(text)
        if row and len(self._found) < FILES_LIMIT:
            kept = self._found.setdefault(row["name"], {})
            kept.setdefault(host or self._host or line.source, (row["long"] or row["size"] or row["sum"], line))
        return row is not None

    def end(self, source: str) -> None:
        self._host = ""

    def signals(self) -> Iterator[Signal]:
        unlike = {name: kept for name, kept in self._found.items() if len({value for value, _ in kept.values()}) > 1}
        same = [
            kept for kept in self._found.values() if len(kept) > 1 and len({value for value, _ in kept.values()}) == 1
        ]
        if not unlike or len(unlike) > len(same):  # most differ: other models
            return
        name, kept = next(iter(unlike.items()))
        values = {host: value for host, (value, _) in kept.items()}
        if all(value.isdecimal() and len(value) < 16 for value in values.values()):
            host = min(values, key=lambda one: int(values[one]))
            told = f"{name} has {values[host]} bytes on {host} and {max(values.values(), key=int)} elsewhere: its copy is cut off, or still under way"
        else:
            host, told = "", f"{name} is another file on {' and '.join(list(values)[:4])}"
        lines = [line for _, line in kept.values()]
        yield Signal(
            "weights-corrupt",
            Says.STRONG,
            told,
            [line.evidence() for line in lines[:4]],
            {"node": host} if host else {},
            condition=True,
            order=lines[0].order,
            remedy=f"copy {name} again and compare checksums (sha256sum) on all nodes",
        )
