"""Lines for a terminal, broken where it ends; in files and pipes they stay whole, for grep and editors."""

from __future__ import annotations

import shutil
import textwrap

UNBOUNDED = 100_000
LEAST, MOST = 60, 140
"""Columns that are used, whatever the terminal has."""


def columns() -> int:
    """Of the terminal, or as COLUMNS says; `UNBOUNDED` where stdout is none."""
    found = shutil.get_terminal_size((UNBOUNDED, 0)).columns
    return found if found >= UNBOUNDED else max(LEAST, min(found, MOST))


def wrapped(line: str, rest: str = "") -> str:
    """`line`, its further lines beginning with `rest`; words that are too long (paths) stay whole."""
    if len(line) <= columns():
        return line
    return textwrap.fill(
        line, columns(), subsequent_indent=rest, break_long_words=False, break_on_hyphens=False, expand_tabs=False
    )
