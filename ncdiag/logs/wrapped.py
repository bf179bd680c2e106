"""Logs whose every line is a JSON object (docker's json-file, fluent-bit, structured loggers, cloud exports) -> the lines that were printed.

One entry stays one line, so that numbers hold; lines within an entry are set apart by a carriage return.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "line", "body")
"""Where collectors put what was printed. Sources: docker json-file, fluent-bit and vector, Google Cloud Logging, journalctl -o json, Loki exports."""
LINE_LIMIT = 1 << 20  # bytes of an entry
_LOOK = 5  # lines of the beginning that decide


def is_wrapped(head: bytes) -> bool:
    """Whether the first lines are JSON objects with a text in them."""
    lines = [line for line in head.split(b"\n")[: _LOOK + 1] if line.strip()]
    whole = lines[:_LOOK] if len(lines) > _LOOK or head.endswith(b"\n") else lines[:-1] or lines
    return bool(whole) and all(line.lstrip().startswith(b"{") and _text(line) is not None for line in whole)


def unwrapped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks with every entry replaced by its text; what is no entry stays."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield b"\n".join(map(_plain, lines)) + b"\n"
        if len(rest) > LINE_LIMIT:
            yield rest
            rest = b""
    if rest:
        yield _plain(rest)


def _plain(line: bytes) -> bytes:
    text = _text(line) if line.lstrip().startswith(b"{") else None
    if text is None:
        return line
    return text.rstrip("\r\n").replace("\r\n", "\n").replace("\n", "\r").encode("utf-8", "replace")


def _text(line: bytes) -> str | None:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    return next((entry[key] for key in KEYS if isinstance(entry.get(key), str)), None)
