"""One pass over the lines of all sources: rules by literal, readers of blocks, and the NCCL parser, at the speed of the NCCL parser.

Most lines of a log say again what another one said, with other numbers. So a line is first reduced to its shape (no digits, no hex letters);
a shape that once held no literal of any rule is never looked at again. Neither is a message of NCCL, to the letter, that no rule matched and no reader
knows, when another process prints it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from ncdiag.explain import Signal
from ncdiag.logs import returns
from ncdiag.logs.model import Line, Rule, label, signal, split_prefix, without_guesses
from ncdiag.logs.routine import Routine
from ncdiag.logs.tongues import TONGUES, in_english
from ncdiag.logs.words import Words
from ncdiag.logs.words import shape as words_shape
from ncdiag.nccl.lines import clean

LINE_LIMIT = 64 * 1024  # bytes of a line that are read
NUMBER_LIMIT = 300  # digits; a number with more is none
BLOCK = 128 * 1024  # bytes worked on at a time; a size that stays in the cache of one core
SHAPES_LIMIT = 32 << 20  # bytes of remembered shapes of lines without a literal
SHAPE_COST = 100  # bytes that remembering a shape takes beside its own
SHAPE_LIMIT = 4096  # bytes of a shape that is remembered
ALIKE_LIMIT = 4  # matches of one rule in one source that are kept; the rest is counted
MATCHES_LIMIT = 400  # of one rule over all sources
MATCHED_LIMIT = 100_000  # lines

MESSAGES_LIMIT = 16_384  # messages of NCCL with a literal that are remembered

_ENDLESS = re.compile(r"\d{%d,}" % NUMBER_LIMIT)
_NUMBERS = b"0123456789abcdefx"
_COMMUNICATOR = re.compile(
    rb"NCCL INFO (?:(?:\w+ )?comm 0x[0-9a-f]+ rank \d+ nranks \d+ [\w -]*- Init (?:START|COMPLETE)|Init timings - \w+: rank \d+ nranks [\w ,.()]*\))$"
)
"""Lines that every rank prints, in which nothing but numbers changes: when one of them is of no interest, none is."""


_RAY = rb"(?:\x1b\[[0-9;]{1,8}m)?\([\w:.<>-]{1,80} pid=\d{1,9}(?:, ip=[\w.:]{1,45})?\)(?:\x1b\[0?m)? (?=\S)"
_RAY_PREFIX = re.compile(_RAY)
"""Which of Ray's or vLLM's processes a line comes from."""
_RAY_PREFIXES = re.compile(rb"(?<=\n)(" + _RAY + rb")")


def _said(raw: bytes) -> tuple[bytes, bytes]:
    """What tells a line of NCCL from others, besides which host and process printed it."""
    head, _, message = raw.partition(b"NCCL INFO ")
    return head.translate(None, _NUMBERS), message


class Reader(Protocol):
    """Reads a block of lines: a pasted table, a stack, a traceback. One object serves all sources."""

    @property
    def triggers(self) -> tuple[str, ...]:
        """Literals that begin a block."""
        ...

    def take(self, line: Line) -> bool:
        """Takes a line; False when the block is over (and this line is not part of it)."""
        ...

    def end(self, source: str) -> None:
        """The source has no more lines."""
        ...

    def signals(self) -> Iterable[Signal]:
        """What all blocks together say."""
        ...


@runtime_checkable
class Summing(Reader, Protocol):
    """A reader of single lines that a job prints again and again."""

    def routine(self, line: Line) -> bool:
        """Whether of many lines in a row that differ from this one in numbers only, the first and the last few say all (see `routine`)."""
        ...


@dataclass
class _Pending:
    """A rule whose message goes on over several lines."""

    rule: Rule
    first: Line
    text: str
    left: int


def _text(raw: bytes) -> str:
    """What is read of a line. No number in it is longer than Python reads (sys.get_int_max_str_digits)."""
    text = clean(raw[:LINE_LIMIT]).decode("utf-8", "replace")
    return _ENDLESS.sub("#", text) if len(text) > NUMBER_LIMIT else text


def literals_of(rules: Sequence[Rule], readers: Sequence[Reader]) -> list[str]:
    return sorted(
        {text for rule in rules for text in rule.literals}
        | {text for reader in readers for text in reader.triggers}
        | TONGUES.keys()
    )


@functools.lru_cache(maxsize=4)
def _words(words: tuple[str, ...]) -> Words:
    return Words(words)


class Scanner:
    """Feeds lines to rules and readers."""

    def __init__(self, rules: Sequence[Rule], readers: Sequence[Reader]) -> None:
        self._literals = _words(tuple(literals_of(rules, readers)))
        self._rules: dict[str, list[Rule]] = {}
        self._triggers: dict[str, list[Reader]] = {}
        for rule in rules:
            for literal in rule.literals:
                self._rules.setdefault(literal, []).append(rule)
        for reader in readers:
            for literal in reader.triggers:
                self._triggers.setdefault(literal, []).append(reader)
        self._readers = readers
        self._summing = {id(reader): reader for reader in readers if isinstance(reader, Summing)}
        self._boring: set[bytes] = set()
        self._telling: set[bytes] = (
            set()
        )  # shapes of lines that hold a literal, most of them whatever their numbers are
        self._prefixes: set[bytes] = set()  # of Ray, which were seen in a line that was looked at
        self._words: dict[tuple[bytes, bytes], tuple[str, ...]] = {}  # by message of NCCL; empty: of no interest
        self._kept = 0  # bytes of them
        self._active: list[Reader] = []
        self._routine = Routine()
        self._pending: list[_Pending] = []
        self._alike: dict[tuple[int, str], int] = {}
        self._total: dict[int, int] = {}
        self._latest: dict[tuple[int, str], Signal] = {}
        self.position = 0
        """Lines fed so far, over all sources."""
        self._prefix = ""
        self.found: list[Signal] = []
        self.matched: set[tuple[str, float]] = set()
        """`(source, order)` of lines that a rule matched, as far as they are kept in mind."""
        self.blocks: set[str] = set()
        """Sources of which a reader took a block of lines."""

    def feed(self, source: str, block: bytes, first: int) -> None:
        """Complete lines, the last one without newline; the first has number `first`. Every line counts for `order`."""
        self.position += self.feed_some(source, block, range(first, sys.maxsize), self.position - first)

    def feed_some(self, source: str, block: bytes, numbers: Sequence[int], start: float, prefix: str = "") -> int:
        """Lines with these numbers (more may be given); `start` and its number make the order of one. All begin with `prefix`, which is no part of them. How many they are."""
        if prefix != self._prefix:
            self._read_routine(source)
            self._prefix = prefix
        shapes = self._without_prefixes(block).translate(None, _NUMBERS).split(b"\n")
        if not (self._active or self._pending) and (
            self._boring.issuperset(shapes) or not self._literals.within(block.decode("utf-8", "replace"))
        ):
            return len(shapes)
        self._lines(source, block.split(b"\n"), shapes, numbers, start)
        return len(shapes)

    def _without_prefixes(self, block: bytes) -> bytes:
        """The block without Ray's prefixes, when each of them has been looked at before: then only what follows is new."""
        if not self._prefixes or b" pid=" not in block:
            return block
        parts = _RAY_PREFIXES.split(b"\n" + block)
        return b"".join(parts[::2])[1:] if self._prefixes.issuperset(parts[1::2]) else block

    def _lines(
        self, source: str, lines: Sequence[bytes], shapes: Sequence[bytes], numbers: Sequence[int], start: float
    ) -> None:
        boring, routine = self._boring, self._routine.takes
        new = [index for index, shape in enumerate(shapes) if shape not in boring]
        index, at = 0, 0  # the next line; the next of the new ones
        while True:
            free = not (self._active or self._pending)
            if free:
                while at < len(new) and new[at] < index:
                    at += 1
                index = new[at] if at < len(new) else len(lines)
            if index >= len(lines):
                return
            raw, shape, number = lines[index], shapes[index], numbers[index]
            if not free or not (routine(raw, shape, number, start + number) or self._silent(raw, shape)):
                self._whole(source, raw, shape, number, start + number)
            index += 1

    def _whole(self, source: str, raw: bytes, shape: bytes, number: int, order: float) -> None:
        """A line that is looked at in full."""
        self._read_routine(source)
        prefix = _RAY_PREFIX.match(raw)
        known = (
            prefix is not None and prefix[0] in self._prefixes and b"NCCL INFO " in raw
        )  # its words have been looked at
        said = _said(raw) if b"NCCL INFO " in raw and b"\r" not in raw and (known or prefix is None) else None
        words = self._words.get(said) if said else None
        free, concerns = not (self._active or self._pending), False
        for line in self._pieces(source, raw, number, order):
            if words is not None:
                found = words
            elif shape in self._boring:
                found = ()
            elif prefix is not None and known:
                found = self._literals.of(_text(raw[prefix.end() : LINE_LIMIT]))
            else:
                found = self._literals.of(line.text)
            concerns |= self._line(line, found)
        if prefix is not None and prefix[0] not in self._prefixes:
            self._know_prefix(prefix[0])
        if said is None and free and self._is_routine(line, found):
            self._routine.know(raw, shape)
        if said is None or words is not None:
            return
        if free and not concerns and _COMMUNICATOR.search(raw):
            self._bore(shape)
        elif len(raw) < SHAPE_LIMIT and len(self._words) < MESSAGES_LIMIT:
            self._words[said] = () if free and not concerns else found

    def _know_prefix(self, prefix: bytes) -> None:
        """Readers have seen it. What a rule may look for in it is looked for in every line."""
        if len(self._prefixes) < MESSAGES_LIMIT and self._rules.keys().isdisjoint(self._literals.of(_text(prefix))):
            self._prefixes.add(prefix)

    def _is_routine(self, line: Line, words: Sequence[str]) -> bool:
        """Whether readers only, and no rule, know the line, and all of them call it routine."""
        if self._active or self._pending or not words:
            return False
        if not self._rules.keys().isdisjoint(words):
            return False
        asked = {id(reader) for word in words for reader in self._triggers.get(word, ())}
        return bool(asked) and asked <= self._summing.keys() and all(self._summing[one].routine(line) for one in asked)

    def _read_routine(self, source: str) -> None:
        """Hand the readers what is to be read of the routine lines before this place."""
        for order, number, raw in self._routine.over():
            for line in self._pieces(source, raw, number, order):
                self._line(line, self._literals.of(line.text))

    def _pieces(self, source: str, raw: bytes, number: int, order: float) -> Iterator[Line]:
        """A line, or what carriage returns set apart in it: states of a bar, and what was printed between them. The first one's prefix is that of all."""
        if b"\r" not in raw:
            before, text = self._split(_text(raw))
            yield Line(source, number, text, order, before)
            return
        common = ""
        for index, part in enumerate(pieces := raw.split(b"\r")):
            before, text = self._split(_text(part))
            common = before + label(text) if index == 0 else common
            yield Line(source, number, text, order + index / len(pieces) / 4, before or common)

    def _split(self, text: str) -> tuple[str, str]:
        if not self._prefix or not text.startswith(self._prefix):
            return split_prefix(text)
        before, rest = split_prefix(text[len(self._prefix) :])
        return self._prefix + before, rest

    def _silent(self, raw: bytes, shape: bytes) -> bool:
        """Whether no rule and no reader has anything to do with the line."""
        if shape in self._boring:
            return True
        prefix = _RAY_PREFIX.match(raw)
        if prefix is not None and prefix[0] in self._prefixes:  # only what follows is new
            rest = raw[prefix.end() :]
            return self._silent(rest, rest.translate(None, _NUMBERS))
        if self._words and b"NCCL INFO " in raw:
            words = self._words.get(_said(raw))
            if words is not None:
                return not words
        plain = words_shape(raw)
        if plain in self._telling:
            return False
        if not self._literals.within(raw.decode("utf-8", "replace")):
            self._bore(shape)
            return True
        if len(self._telling) < MESSAGES_LIMIT and len(plain) < SHAPE_LIMIT:
            self._telling.add(plain)
        return False

    def _bore(self, shape: bytes) -> None:
        if self._kept < SHAPES_LIMIT and len(shape) < SHAPE_LIMIT:
            self._boring.add(shape)
            self._kept += len(shape) + SHAPE_COST

    def end(self, source: str) -> None:
        self._read_routine(source)
        for pending in self._pending:
            self._complete(pending)
        self._pending = []
        for reader in self._readers:
            reader.end(source)
        self._active = []

    def signals(self) -> Iterator[Signal]:
        yield from self.found
        for reader in self._readers:
            yield from reader.signals()

    def _line(self, line: Line, words: Sequence[str]) -> bool:
        """False when no rule matched and no reader was asked."""
        concerns = False
        if not TONGUES.keys().isdisjoint(words):
            told = in_english(line.text, words)
            line = replace(line, text=told, printed=line.text)
            words = (*words, *self._literals.of(told))
        self._active = [reader for reader in self._active if reader.take(line)]
        for pending in self._pending:
            pending.text += " " + line.text.strip()
            pending.left -= 1
            if pending.left <= 0 or pending.rule.find(pending.text) is not None:
                self._complete(pending)
                pending.left = 0
        self._pending = [pending for pending in self._pending if pending.left > 0]
        text = line.text
        said = without_guesses(text)
        tried: set[int] = set()
        for word in words:
            if word not in text:
                continue  # it stood in front of the same message of another process
            for rule in self._rules.get(word, ()) if word in said else ():
                if id(rule) not in tried:
                    tried.add(id(rule))
                    concerns |= self._try(rule, line, said)
            for reader in self._triggers.get(word, ()):
                if id(reader) not in tried and reader not in self._active:
                    tried.add(id(reader))
                    concerns = True
                    if reader.take(line):
                        self._active.append(reader)
                        self.blocks.add(line.source)
        return concerns

    def _try(self, rule: Rule, line: Line, text: str) -> bool:
        """False when the rule does not match, and will not with the lines that follow."""
        groups = rule.find(text)
        if groups is not None:
            self._match(rule, line, groups)
        elif rule.lines > 1 and (rule.unless is None or not rule.unless.search(text)):
            self._pending.append(_Pending(rule, line, text.strip(), rule.lines - 1))
        else:
            return False
        return True

    def _complete(self, pending: _Pending) -> None:
        groups = pending.rule.find(pending.text)
        if groups is not None:
            self._match(pending.rule, pending.first, groups)

    def _match(self, rule: Rule, line: Line, groups: dict[str, str]) -> None:
        key = (id(rule), line.source)
        seen = self._alike.get(key, 0)
        self._alike[key] = seen + 1
        total = self._total.get(id(rule), 0)
        if len(self.matched) < MATCHED_LIMIT:
            self.matched.add((line.source, line.order))
        if seen >= ALIKE_LIMIT or total >= MATCHES_LIMIT:
            if key in self._latest:
                self._latest[key].until = line.order
            return
        self._total[id(rule)] = total + 1
        self._latest[key] = signal(rule, line, groups)
        self.found.append(self._latest[key])


def blocks_of(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Chunks of a stream -> (number of the first line, complete lines without the last newline). What is beyond the limits of a line is dropped."""
    rest, number = b"", 1
    for chunk in (
        whole[start : start + BLOCK] for whole in returns.whole_lines(chunks) for start in range(0, len(whole), BLOCK)
    ):
        end = chunk.rfind(b"\n")
        if end < 0:
            rest = _cut(rest + chunk)
            continue
        block = rest + chunk[:end]
        if b"\r" in block:
            block = b"\n".join([_cut(line) if b"\r" in line else line for line in block.split(b"\n")])
        rest = _cut(chunk[end + 1 :])
        yield number, block
        number += block.count(b"\n") + 1
    if rest:
        yield number, rest


def _cut(line: bytes) -> bytes:
    return returns.shortened(line) if b"\r" in line else line[:LINE_LIMIT]
