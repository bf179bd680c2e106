"""Logs whose lines do not stand as they were printed: exports that begin with the newest, and terminals that broke long lines.

They are put in order as a whole, and the numbers tell where each line stood.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ncdiag.logs.model import label, split_prefix
from ncdiag.model import Cause, Evidence

SIZE_LIMIT = 32 << 20  # bytes of a stream that is put in order; a longer one is read as it stands
_LOOK = 400  # lines of the beginning that decide
_TIMES = 3  # steps back in time, and lines that were broken within a word, at least
_TIME = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
_TIME_HEAD = 400  # bytes of a line in which its time is looked for
_WIDTHS = range(60, 251)  # columns of a terminal
_SHARE = 5  # one in so many lines is as wide as the terminal, at least
_MOST = 0.75  # of such lines that go on in the next one, at least: a line that ends just there is rare
_ENTRY = re.compile(
    r"\[|\(\w[\w.:<>-]* (?:pid|rank)=|[\w.-]+:\d+:\d+ |(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL|NOTICE)\b|[IWEF]\d{4} |\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s|\S+ kernel: |#|\$ |Traceback \(most recent|[\w.-]+@[\w.-]+[: ]"
)
"""How an entry begins; what goes on from a broken line begins like that by chance only."""
_TOKEN = re.compile(r"[^\s:]*")
_DIGITS = str.maketrans("", "", "0123456789")


def arranged(head: bytes, chunks: Iterator[bytes]) -> tuple[Iterator[bytes], list[int] | None]:
    """The stream as it was printed, and the number that each line had; None where nothing was to be done."""
    first = head.split(b"\n", _LOOK)[:-1]  # the last one may be cut
    backwards, width = _newest_first(first), _width(first)
    if not backwards and not width:
        return chunks, None
    text = b""
    for chunk in chunks:
        text += chunk
        if len(text) > SIZE_LIMIT:
            return itertools.chain([text], chunks), None
    lines = text.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    entries = list(_reversed(lines) if backwards else _joined(lines, width))
    return iter([b"".join(line + b"\n" for line, _ in entries)]), [number for _, number in entries]


def renumbered(causes: Iterable[Cause], numbers: dict[str, list[int]]) -> None:
    """Evidence says where its line stands in the file. Changes the causes."""
    for cause in causes if numbers else ():
        for items in (cause.evidence, cause.secondary, cause.also_seen):
            items[:] = [_placed(item, numbers.get(item.source)) for item in items]


def _placed(item: Evidence, numbers: Sequence[int] | None) -> Evidence:
    if numbers is None or item.line is None or not 0 < item.line <= len(numbers):
        return item
    return replace(item, line=numbers[item.line - 1])


def _newest_first(lines: Sequence[bytes]) -> bool:
    """Whether times go back, and never forward. Continued lines have none."""
    times = [match[0].replace(b"T", b" ") for line in lines if (match := _TIME.search(line[:_TIME_HEAD]))]
    back = sum(after < before for before, after in itertools.pairwise(times))
    return back >= _TIMES and all(after <= before for before, after in itertools.pairwise(times))


def _reversed(lines: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Entries from the last to the first; the lines of one that has no more than one time stay in order."""
    end = len(lines)
    for start in range(len(lines) - 1, -1, -1):
        if start == 0 or _TIME.search(lines[start][:_TIME_HEAD]):
            yield from ((lines[index], index + 1) for index in range(start, end))
            end = start


def _width(first: Sequence[bytes]) -> int:
    """The columns at which a terminal broke the lines; 0 where none did, or where lines of just that width may be whole."""
    lines = [line.decode("utf-8", "replace") for line in first]
    width = max(map(len, lines), default=0)
    full = [index for index, line in enumerate(lines) if len(line) == width]
    if width not in _WIDTHS or len(full) * _SHARE < len(lines):
        return 0
    after = [index + 1 for index in full if index + 1 < len(lines) and _goes_on(lines[index], lines[index + 1])]
    within = sum(lines[index - 1][-1].isalnum() and lines[index][0].isalnum() for index in after)
    ends = sum(len(lines[index]) < width for index in after)  # of a long line something shorter is left
    if within < _TIMES or ends < _TIMES or len(after) < _MOST * len(full):
        return 0
    begins = [lines[index] for index in full if index not in after]
    entries = sum(map(_begins, begins))
    kinds = len({line.translate(_DIGITS) for line in begins})
    return width if 2 * entries >= len(begins) and (kinds > 1 or ends < len(after)) else 0


def _begins(line: str) -> bool:
    """Whether a line begins as an entry does: with a launcher's or a process's first words."""
    return bool(_ENTRY.match(line) or split_prefix(line)[0] or label(line))


def _goes_on(line: str, after: str) -> bool:
    """Whether what follows a line of full width does not begin as an entry does: with a launcher's, a process's or the same line's first words."""
    if not after or _begins(after):
        return False
    one, other = (_TOKEN.match(text)[0].translate(_DIGITS) for text in (line, after))  # type: ignore[index]
    return one != other or not one


def _joined(lines: Sequence[bytes], width: int) -> Iterator[tuple[bytes, int]]:
    """Lines of full width with those that go on from them."""
    whole, number, first, last = b"", 0, "", ""
    for index, line in enumerate(lines, 1):
        text = line.decode("utf-8", "replace").rstrip("\r")
        if number and len(last) == width and _goes_on(first, text):
            whole += line
        else:
            if number:
                yield whole, number
            whole, number, first = line, index, text
        last = text
    if number:
        yield whole, number
