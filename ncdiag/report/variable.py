"""One variable as a person reads it."""

from __future__ import annotations

import textwrap

from ncdiag.nccl.explanation import Explanation
from ncdiag.report.plain import one_line
from ncdiag.report.wrapped import columns

WIDTH = 110


def explained(one: Explanation) -> str:
    """A variable on a few lines."""
    lines = [one.name, *_indented(one.effect or "Known by name only; what it does is not said here.")]
    for label, value in (
        ("read by", one.read_by),
        ("default", one.default),
        ("releases", one.releases),
        ("values", one.values),
    ):
        if value is not None:
            lines += _indented(f"{label + ':':<10}{value}", "          ")
    return "\n".join([*lines, *(line for note in one.notes for line in _indented("note:     " + note, "          "))])


def _indented(text: str, more: str = "") -> list[str]:
    return textwrap.wrap(
        one_line(text),
        min(columns(), WIDTH),
        initial_indent="  ",
        subsequent_indent="  " + more,
        break_long_words=False,
    )
