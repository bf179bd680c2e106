"""Carriage returns without a newline: the line ends of old programs and serial consoles, and what progress bars write over themselves.

Where returns are the only line ends, each ends a line. Else a line is what a newline ends, as editors and grep count, and what returns set apart in it are
pieces: states of a bar, and what was printed between two of them. Of many alike states in a row the first and the last ones say all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LOOK = 64 * 1024  # bytes without a newline, from which on none is expected
ENDS = 3  # states at both ends of a row that are kept
PIECE_LIMIT = 64 * 1024  # bytes of a piece that are kept
LINE_LIMIT = 1 << 20  # bytes of a line of many pieces that are kept

_STATE = re.compile(rb"\d ?%|\bit/s\b|\bs/it\b|\d ?[kKMG]i?B/s")
_MOVES = bytes({*b"0123456789 .,:#=>*-+/|?\\", *range(128, 256)})
"""What changes from one state of a bar to the next."""


def whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks with newlines as line ends: for CR LF, and for returns in a text that has nothing else. Returns within a line stay."""
    held, only = b"", False
    beginning = _beginning(iter(chunks))
    for number, chunk in enumerate(beginning):
        chunk, held = held + chunk, b""
        if chunk.endswith(b"\r"):
            chunk, held = chunk[:-1], b"\r"
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n")
            only = only or (number == 0 and _ends_lines(chunk))
            yield chunk.replace(b"\r", b"\n") if only else chunk
        else:
            yield chunk
    if held:
        yield b"\n" if only else held


def _beginning(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same, the first one long enough to see how lines end."""
    first = b""
    for chunk in chunks:
        first += chunk
        if b"\n" in chunk or len(first) >= LOOK:
            break
    yield first
    yield from chunks


def _ends_lines(text: bytes) -> bool:
    """Whether returns end lines in a text, and do not set apart states of a bar."""
    if b"\n" in text or b"\r" not in text:
        return False
    pieces = [piece for piece in text.split(b"\r") if piece.strip()]
    return sum(_STATE.search(piece) is not None for piece in pieces) * 2 < len(pieces)


def shortened(line: bytes) -> bytes:
    """A line without what lies between the first and the last of alike states, and without what is beyond the limits."""
    pieces = [piece[:PIECE_LIMIT] for piece in line.split(b"\r")]
    if len(pieces) > 2 * ENDS:
        pieces = list(_told(pieces))
    return b"\r".join(pieces)[:LINE_LIMIT]


def _told(pieces: list[bytes]) -> Iterator[bytes]:
    row: list[bytes] = []
    kind = None
    for piece in pieces:
        of = piece.translate(None, _MOVES)
        if of != kind:
            yield from _ends(row)
            row, kind = [], of
        row.append(piece)
    yield from _ends(row)


def _ends(row: list[bytes]) -> list[bytes]:
    return row if len(row) <= 2 * ENDS else row[:ENDS] + row[-ENDS:]
