"""Work before the common one, of any tool: how long a piece of it took, and counts that grow while it is under way.

Sources: Megatron-LM, NeMo, DeepSpeed, torchtitan, datasets and tokenizers, TensorRT-LLM, ninja.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import trains
from ncdiag.logs.model import Line, speaker

LONG_S = 300.0  # seconds of one piece of work, from which on it is told
_UNITS = (
    "documents",
    "docs",
    "records",
    "rows",
    "shard",
    "files",
    "layer",
    "kernels",
    "graphs",
    "articles",
    "lines",
    "] ",
)
GREW = 2  # times that a count grew, to be work that moves
_WORK = re.compile(
    r"(?i)\b(?:re)?(?:buil[dt]|load|compil|tokeniz|sav|captur|warm|convert|download|index|preprocess|preparing|cach|sort|shuffl|pack|map|filter|merg|quantiz|autotun|split|unpack|extract|copy|copied|engine|restor)\w*"
)
_SECONDS = re.compile(r"\d{3,9}(?:\.\d{1,20})? ?(?:seconds|secs?|s)\b")
_MINUTES = re.compile(r"\d{1,6}(?:\.\d{1,20})? ?(?:minutes|mins?|hours)\b")
_UNIT = re.compile(r"\((?P<unit>seconds|secs?|s|minutes|mins?)\)\s*[:=]\s*(?P<n>\d{1,9}(?:\.\d{1,20})?)")
_FIGURE = re.compile(r"[:=]\s*\d{3,9}\.\d")
_CLOCK = re.compile(r"\d{1,3}:\d\d:\d\d\b")
_BEFORE = re.compile(
    r"\b(?:took|takes|taken|elapsed(?: time)?|in|after|op|[Tt]ime (?:of|to|for|spent|spent in) [\w ,.-]{1,60}|(?i:compil\w+|build\w*|loading|warm-?up) time)[^\w\n]{0,12}$"
)
"""What stands before it. A clock has no such words before it."""
_NOT = re.compile(
    r"(?i)time-?out|timed[ -]out|limit|exceed|ran for|fail|error|kill|expire|every|interval|heartbeat|\beta\b|remain|retry|waiting|NCCL"
)
_COUNT = re.compile(
    r"\b(?P<what>(?:[Pp]rocess|[Tt]okeniz|[Rr]ead|[Ll]oad|[Ii]ndex|[Bb]uil[dt]|[Cc]onvert|[Pp]ack|[Dd]ownload|[Ww]rit|[Ss]av|[Cc]op[yi]|[Mm]ap|[Ff]ilter|[Mm]erg|[Cc]ompil)\w*)\W+(?:\w+\W+){0,3}?(?P<n>\d[\d,]{0,14})(?:\s*/\s*\d[\d,]*)?\s+(?P<unit>documents|docs|records|rows|shards?|files|layers?|kernels|graphs|articles|lines)\b"
    r"|\b(?P<what3>(?:[Ll]oad|[Tt]okeniz|[Cc]ompil|[Bb]uild|[Dd]ownload|[Cc]onvert|[Ii]ndex|[Mm]erg|[Pp]ack|[Qq]uantiz|[Cc]aptur)\w*)\W+(?:\w+\W+){0,3}?(?P<n3>\d{1,9})\s*/\s*\d{1,9}(?![\d/.])"
    r"|^\[(?P<n2>\d{1,6})/\d{1,6}\] (?P<what2>Building|Linking|Compiling|c\+\+|g\+\+|\S*nvcc|Generating)\b"
)


@dataclass
class _Count:
    """A count that was heard."""

    value: int
    line: Line
    grew: int = 0


class Lasting:
    """The piece of work that lasted longest, and the count that was heard last."""

    triggers = ("(seconds)", " seconds", " secs", " minutes", "elapsed", " took ", "time of build", "ime spent in", " documents", " docs", " records", " rows", " shards", " files", " layers", " kernels", "CUDA graphs", " graphs in ", "] Building ", "nvcc ", "/c++ ", "] c++ ")  # fmt: skip

    def __init__(self) -> None:
        self._longest: tuple[float, str, Line] | None = None
        self._counts: dict[str, _Count] = {}
        self._last: _Count | None = None

    def take(self, line: Line) -> bool:
        text = line.text
        if not trains(text):
            self._take_time(line)
            self._take_count(line)
        return False

    def routine(self, line: Line) -> bool:
        """A step of a training is none of this."""
        return trains(line.text)

    def _take_time(self, line: Line) -> None:
        text = line.text[:400]
        seconds = _long(text)
        if not seconds or _NOT.search(text) or not (work := _WORK.search(text)):
            return
        if self._longest is None or seconds > self._longest[0]:
            what = text[work.start() : work.start() + 60].split("(")[0].split(" took")[0]
            what = _FIGURE.split(what)[0].strip(" :.")
            self._longest = seconds, what, line

    def _take_count(self, line: Line) -> None:
        text = line.text[:400]
        count = _COUNT.search(text) if any(unit in text for unit in _UNITS) else None
        if count is None or len(self._counts) > 1000:
            return
        key = f"{line.source} {(count['what'] or count['what2'] or count['what3']).lower()} {count['unit']}"
        value = int((count["n"] or count["n2"] or count["n3"]).replace(",", ""))
        known = self._counts.get(key)
        grew = known.grew + 1 if known is not None and value > known.value else 0
        self._last = self._counts[key] = _Count(value, line, grew)

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        yield from ()

    def slow(self) -> Signal | None:
        """A piece of work that took long and came to its end."""
        if self._longest is None:
            return None
        seconds, what, line = self._longest
        return _signal(f"{what}: {seconds / 60:.0f} min; it went on by itself", line)

    def moving(self) -> Signal | None:
        """A count that grew and is the last that was heard of such work."""
        if self._last is None or self._last.grew < GREW:
            return None
        return _signal("a count of work before the common one was growing when this ends", self._last.line)


def _long(text: str) -> float:
    """Seconds that something is said to have taken, 0.0 where that is not said or not long."""
    unit = _UNIT.search(text) if "(s" in text or "(m" in text else None
    if unit:
        return _told(float(unit["n"]) * (60 if unit["unit"].startswith("m") else 1))
    for found in (*_SECONDS.finditer(text), *_MINUTES.finditer(text)):
        if text[: found.start()].endswith((".", ":")) or not _BEFORE.search(text[: found.start()]):
            continue
        number, letter = re.match(r"[\d.]+", found[0]), found[0].lstrip("0123456789. ")[0]
        return _told(float(number[0]) * {"s": 1, "m": 60, "h": 3600}[letter]) if number else 0.0
    clock = _CLOCK.search(text) if "took" in text or "elapsed" in text or "ime of" in text else None
    if clock and _BEFORE.search(text[: clock.start()]):
        hours, minutes, rest = clock[0].split(":")
        return _told(int(hours) * 3600.0 + int(minutes) * 60 + int(rest))
    return 0.0


def _told(seconds: float) -> float:
    return seconds if seconds >= LONG_S else 0.0


def _signal(summary: str, line: Line) -> Signal:
    return Signal(
        "slow-not-hung", Says.STRONG, summary, [line.evidence()], speaker(line.shown), condition=True, order=line.order
    )
