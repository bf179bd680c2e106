"""Which of many words stand in a text, at the speed of a table instead of one comparison a word and letter.

The regular expressions of pydantic's core (Rust) find any of a thousand words in one pass; Python's own try them one by one at every letter. They say
only yes or no. So the words are divided into smaller sets until those that stand in the text are left; and where many texts hold the same few words,
those are looked for first, and one question settles that there are no others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from pydantic_core import SchemaValidator, core_schema

_FEW = 32  # words that are looked for one by one
_PARTS = 8  # sets that a larger one is divided into
_PAYS = 200  # texts, after which making an expression takes less time than asking for each word
_USUAL_FROM = 1000  # texts with the same words, before these are looked for first
_USUAL_LIMIT = 8  # sets of words that are looked for first
_COUNTED_LIMIT = 4096  # sets of words that are counted
_SHAPES_LIMIT = 16_384  # shapes of texts whose words are remembered
_SHAPE_LIMIT = 4096  # letters of one
_DIGITS = bytes(48 if 48 <= byte < 58 else byte for byte in range(256))
_HAS_DIGIT = re.compile(r"[0-9]").search


def shape(text: bytes) -> bytes:
    """One zero for every number: texts of one shape hold the same words, but for those with a digit in them."""
    plain = text.translate(_DIGITS)
    while b"00" in plain:
        plain = plain.replace(b"00", b"0")
    return plain


class Words:
    """A set of words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(words)
        self._asked = 0
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._usual: dict[tuple[str, ...], Words] = {}
        """Words that many texts hold -> all the others."""
        self._shapes: dict[bytes, tuple[str, ...]] = {}
        """Shape of a text -> its words, none of which has a digit."""

    @cached_property
    def within(self) -> Callable[[str], bool]:
        """Whether one of the words stands in a text. Made when the first text is asked about."""
        pattern = "|".join(re.escape(word).replace(r"\ ", " ") for word in self._words)
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python

    def of(self, text: str) -> tuple[str, ...]:
        """All of the words that stand in the text, in the order of their first places."""
        plain = shape(text.encode("utf-8", "replace"))
        known = self._shapes.get(plain)
        if known is not None and not self._numbered(text):
            return known
        found = self._looked_up(text)
        if len(self._shapes) < _SHAPES_LIMIT and len(plain) < _SHAPE_LIMIT and not any(map(_HAS_DIGIT, found)):
            self._shapes[plain] = found
        return found

    @cached_property
    def _numbered(self) -> Callable[[str], bool]:
        """Whether one of the words with a digit stands in a text."""
        words = [word for word in self._words if _HAS_DIGIT(word)]
        return Words(words).within if words else lambda text: False

    def _looked_up(self, text: str) -> tuple[str, ...]:
        if not self.within(text):
            return ()
        for words, others in self._usual.items():
            if all(word in text for word in words) and not others.within(text):
                return words if len(words) < 2 else tuple(sorted(words, key=text.find))
        found = tuple(self._found(text))
        self._count(found)
        return found if len(found) < 2 else tuple(sorted(found, key=text.find))

    def _found(self, text: str) -> Iterator[str]:
        if len(self._words) <= _FEW:
            yield from (word for word in self._words if word in text)
            return
        for part in self._parts:
            if part._holds(text):
                yield from part._found(text)

    def _holds(self, text: str) -> bool:
        """`within`, for a part that may never be asked often."""
        self._asked += 1
        return self.within(text) if self._asked > _PAYS else any(word in text for word in self._words)

    @cached_property
    def _parts(self) -> list[Words]:
        size = -(-len(self._words) // _PARTS)
        return [Words(self._words[start : start + size]) for start in range(0, len(self._words), size)]

    def _count(self, found: tuple[str, ...]) -> None:
        if len(self._usual) < _USUAL_LIMIT and (found in self._seen or len(self._seen) < _COUNTED_LIMIT):
            self._seen[found] += 1
            if found and self._seen[found] == _USUAL_FROM:
                self._usual[found] = Words([word for word in self._words if word not in found])
