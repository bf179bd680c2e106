"""What of a list of all processes belongs into a record: the family of the engine's process, no idle kernel threads. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ncdiag.nodeset import counted

ROW_LIMIT = 300
"""Characters of one row; the command lines of engines are long, and their heads tell which process it is."""

_KTHREADD = re.compile(r"\s*2\s+0\s.*\s\[?kthreadd\]?\s*")
"""The parent of all kernel threads; in a container process 2 is any process, and has another name."""


def is_list(argv: Sequence[str]) -> bool:
    """Whether a command lists every process of a machine."""
    return list(argv[:2]) == ["ps", "-e"]


def that_matter(text: str, pid: int | None) -> str:
    """The rows of `ps -e -o pid,ppid,…` that matter, and how many are left out.

    Where `pid` is among them: itself, those above it, and all that its parent started (the other ranks of a launcher).
    Else every process but kernel threads; one in state D stays. A text of another form is given back as it is.
    """
    header, *rows = text.splitlines() or [""]
    cells = [row.split() for row in rows]
    if header.split()[:2] != ["PID", "PPID"] or not all("".join(row[:2]).isdecimal() and row[2:] for row in cells):
        return text
    parents = {int(row[0]): int(row[1]) for row in cells}
    if pid in parents:
        wanted, others = _family(pid, parents), "other processes"
    else:
        wanted, others = set(parents) - _kernel(parents, rows), "kernel threads"
    column = header.split().index("STAT") if "STAT" in header.split() else None
    waits = [pid not in parents and column is not None and row[column].startswith("D") for row in cells]
    kept = [text for text, row, stays in zip(rows, cells, waits, strict=True) if stays or int(row[0]) in wanted]
    left = [f"… {counted(len(rows) - len(kept), 'row')} of {others} left out …"] if len(kept) < len(rows) else []
    return "\n".join([header, *map(_cut, kept), *left])


def _family(pid: int, parents: Mapping[int, int]) -> set[int]:
    above = [pid]
    while parents.get(above[-1], 0) not in (0, *above):
        above.append(parents[above[-1]])
    top = above[1] if len(above) > 1 and above[1] != 1 else pid
    family = {top}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return family | set(above)


def _kernel(parents: Mapping[int, int], rows: Sequence[str]) -> set[int]:
    if not any(_KTHREADD.fullmatch(row) for row in rows):
        return set()
    return {2} | {one for one, parent in parents.items() if parent == 2}


def _cut(row: str) -> str:
    return row if len(row) <= ROW_LIMIT else row[: ROW_LIMIT - 1] + "…"
