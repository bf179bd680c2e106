"""Where something stands, while logs are read: the raw line, made a `Line` of facts when one is wanted."""

from __future__ import annotations

from typing import Tuple

from .log_facts import TEXT_LIMIT, Line

At = Tuple[str, int, bytes]  # source, line number, the line, its newline perhaps still at its end


def line(at: At) -> Line:
    source, number, text = at
    return Line(source, number, text[: 4 * TEXT_LIMIT].decode("utf-8", "replace").rstrip("\n")[:TEXT_LIMIT])
