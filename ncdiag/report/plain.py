"""Text that no fact can misuse: control characters, direction marks and what is no character at all are replaced."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\ufffe\uffff\U000e0000-\U000e007f]"
)


def plain(text: object) -> str:
    """`text` without what moves a cursor, reorders or hides a line, or is allowed in no XML. Newlines and tabs stay."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def one_line(text: object) -> str:
    """The same on one line, for names: a node cannot begin a line of its own."""
    return plain(text).replace("\n", "\N{REPLACEMENT CHARACTER}").replace("\t", " ")
