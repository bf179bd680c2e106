"""Which words stand in a text: as asking for each of them would say."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from ncdiag.logs.readers import Readers
from ncdiag.logs.rules import RULES
from ncdiag.logs.scan import literals_of
from ncdiag.logs.words import Words

LITERALS = literals_of(RULES, Readers().all())
WORDS = Words(LITERALS)
PIECES = st.sampled_from([*LITERALS, *(literal[: len(literal) // 2] for literal in LITERALS), " ", "7", "ö", "\ufffd"])


def _one_by_one(text: str) -> set[str]:
    return {literal for literal in LITERALS if literal in text}


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=8).map("".join))
def test_no_word_is_missed_and_none_made_up(text: str) -> None:
    found = WORDS.of(text)
    assert set(found) == _one_by_one(text)
    assert len(found) == len(set(found))
    assert WORDS.within(text) is bool(found)
    assert list(found) == sorted(found, key=text.find)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=6).map("".join), st.data())
def test_other_numbers_hold_other_words(text: str, data: st.DataObject) -> None:
    digits = st.integers(0, 10 ** data.draw(st.integers(1, 6)))
    for _ in range(3):
        other = re.sub(r"[0-9]+", lambda _: str(data.draw(digits)), text)
        assert set(WORDS.of(other)) == _one_by_one(other)


def test_usual_words_hide_no_other_ones() -> None:
    words = Words(LITERALS)
    usual = "iteration 7 | loss 1.25"
    for _ in range(1200):
        assert words.of(usual) == ("loss ",)
    rare = "Connection refused, loss 1.25, Traceback (most recent call last)"
    assert set(words.of(rare)) == _one_by_one(rare)
    assert words.of("nothing here") == ()


def test_letters_that_mean_something_in_expressions_are_letters() -> None:
    assert Words(["a+b", "[x]", "#0 ", "$ ", "^C", "c|d", "\\n"]).of("^C then [x] and a+b") == ("^C", "[x]", "a+b")
    assert not Words(["a+b", "[x]", "c|d", "^C"]).within("aab x c d C")
