"""Lines for a terminal, broken where it ends; in files and pipes they stay whole, for grep and editors."""

from __future__ import annotations

import re
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
    text = line.lstrip(" ")
    return textwrap.fill(
        text,
        columns(),
        initial_indent=" " * (len(line) - len(text)),
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
    )


_FENCE = re.compile(r"\s*(`{3,})")
_ITEM = re.compile(r"\s*(?:- )?")


def markdown(text: str) -> str:
    """Its paragraphs and items as `wrapped` breaks lines; what is quoted between fences, and headings, as they are."""
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1] == fence):
            fence = "" if fence else mark[1]
        indent = " " * len(_ITEM.findall(line)[0])
        lines.append(line if fence or mark or line.startswith("#") else wrapped(line, indent))
    return "\n".join(lines)
