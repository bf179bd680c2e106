"""Logs whose every entry is a JSON object (docker's json-file, fluent-bit, structured loggers, cloud exports) -> the lines that were printed.

One entry stays one line, so that numbers hold; lines within an entry are set apart by a carriage return. In an array, and where an entry takes several
lines, numbers count entries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ncdiag.logs.model import split_prefix

KEYS = ("log", "message", "msg", "textPayload", "MESSAGE", "line", "body")
"""Where collectors put what was printed. Sources: docker json-file, fluent-bit and vector, Google Cloud Logging, journalctl -o json, Loki exports."""
WITHIN = ("jsonPayload", "_source", "log", "fields")
"""Objects within an entry that hold such a key. Sources: Google Cloud Logging, Elasticsearch, the Elastic common schema."""
LISTS = ("events", "entries", "hits", "results", "value")
"""Where answers of collectors hold their entries. Sources: aws logs get-log-events, gcloud, Elasticsearch, Grafana."""
LINE_LIMIT = 1 << 20  # bytes of an entry
DOCUMENT_LIMIT = 64 << 20  # bytes of an array that is read
_LOOK = 5  # lines of the beginning that decide
_BEGINS = re.compile(rb"\s*(?:\[\s*\{|\{\s*\n|\{[^\n]{4096})")
_KEY = re.compile(rb'"(?:' + "|".join(KEYS).encode() + rb')"\s*:\s*"')
_BETWEEN = re.compile(r"[\s,\[\]]*")


def is_wrapped(head: bytes) -> bool:
    """Whether the first lines are JSON objects with a text in them, or the beginning of an array of such."""
    if _BEGINS.match(head) and _KEY.search(head):
        return True
    lines = [line for line in head.split(b"\n")[: _LOOK + 1] if line.strip()]
    whole = lines[:_LOOK] if len(lines) > _LOOK or head.endswith(b"\n") else lines[:-1] or lines
    return bool(whole) and all(_plain(line) is not line for line in whole)


def unwrapped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks with every entry replaced by its text; what is no entry stays."""
    rest, begun = b"", False
    for chunk in chunks:
        if not begun and chunk and _BEGINS.match(chunk):
            yield from _document(chunk, chunks)
            return
        begun = begun or bool(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield b"\n".join(map(_plain, lines)) + b"\n"
        if len(rest) > LINE_LIMIT:
            yield rest
            rest = b""
    if rest:
        yield _plain(rest)


def _document(first: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The entries of an array, or of objects of several lines; of one that is cut, those before the cut."""
    whole = first
    for chunk in chunks:
        if len(whole) > DOCUMENT_LIMIT:
            break
        whole += chunk
    text, at = whole.decode("utf-8", "replace"), 0
    decode = json.JSONDecoder().raw_decode
    while (between := _BETWEEN.match(text, at)) and between.end() < len(text):
        try:
            entry, at = decode(text, between.end())
        except (ValueError, RecursionError):
            yield text[between.end() :].encode("utf-8", "replace")
            return
        for said in _entries(entry):
            yield _line(said) + b"\n"


def _entries(entry: Any) -> Iterator[str]:
    """The texts of an entry, or of the answer that holds entries."""
    text = _text(entry)
    if text is not None:
        yield text
        return
    for key in LISTS if isinstance(entry, dict) else ():
        inner = entry.get(key)
        for one in inner if isinstance(inner, list) else [inner]:
            yield from _entries(one)


def _plain(line: bytes) -> bytes:
    """The text of an entry, behind what a launcher or collector put in front; the very line where it is none."""
    brace = line.find(b"{", 0, 400)
    if brace < 0 or not line.rstrip().endswith(b"}"):
        return line
    before = line[:brace].decode("utf-8", "replace")
    if before.strip() and split_prefix(before)[1]:
        return line
    try:
        said = [line[:brace] + _line(text) for text in _entries(json.loads(line[brace:]))]
    except (ValueError, RecursionError):
        return line
    return b"\n".join(said) if said else line


def _line(text: str) -> bytes:
    return text.rstrip("\r\n").replace("\r\n", "\n").replace("\n", "\r").encode("utf-8", "replace")


def _text(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    for key in KEYS:
        said = entry.get(key)
        if isinstance(said, str):
            return said
        if key == "MESSAGE" and isinstance(said, list):  # journalctl: what holds colours or other control characters
            return bytes(byte for byte in said if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
    return next((text for key in WITHIN if (text := _text(entry.get(key))) is not None), None)
