"""Standard input, output and error as they should be found: open, and able to take every character."""

from __future__ import annotations

import codecs
import io
import os
import sys

_LIKE = {
    "→": "->",
    "…": "...",
    "·": "-",
    "►": ">",
    "—": "-",
    "–": "-",
    "’": "'",
    "“": '"',
    "”": '"',
    "°": " deg ",
    "×": "x",
    "±": "+-",
}
"""What is shown in the place of characters that a terminal's encoding (LANG=C, ISO-8859-1) does not have."""


def prepare() -> None:
    """Opens what was closed (`>&-`): else the first file that is opened gets its number. Called once, before anything else."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    codecs.register_error("ncdiag", _like)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ncdiag")


def as_utf8() -> None:
    """For documents that name their encoding (HTML, XML)."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="ncdiag")


def _like(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_LIKE.get(character, "?") for character in error.object[error.start : error.end]), error.end
