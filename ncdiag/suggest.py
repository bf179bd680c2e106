"""What a name that is not known here was probably meant to be: for commands, probes, playbooks, causes, faults, GPUs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST = 3
"""Names that are suggested at once."""
ALIKE = 0.75
"""Share of equal letters from which a name may have been meant."""
SHORT, ALIKE_SHORT = 5, 0.6
"""Letters up to which a name is short: one wrong letter of three is a third of it."""
CLOSE = 0.05
"""Names this much less alike than the best one are suggested beside it."""


def near(name: str, known: Iterable[str]) -> list[str]:
    """At most `MOST` known names, best first: the same but for case and separators, then those that hold all its words, then those spelt alike."""
    names = list(dict.fromkeys(known))
    bare = {item: _bare(item) for item in names}
    same = [item for item in names if bare[item] == _bare(name)]
    if same:
        return same[:MOST]
    words = set(_words(name))
    holding = [item for item in names if words and words <= set(_words(item))]
    like = {item: difflib.SequenceMatcher(None, _bare(name), bare[item]).ratio() for item in names}
    best = max(like.values(), default=0.0)
    least = ALIKE if len(_bare(name)) > SHORT else ALIKE_SHORT
    spelt = [item for item in sorted(names, key=lambda item: -like[item]) if like[item] >= max(least, best - CLOSE)]
    return list(dict.fromkeys([*holding, *spelt] if len(holding) <= MOST else spelt or holding))[:MOST]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean shm-too-small?` to end a message with; empty where nothing is near."""
    found = near(name, known)
    if not found:
        return ""
    return f"; did you mean {', '.join(found[:-1])}{' or ' if len(found) > 1 else ''}{found[-1]}?"


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _bare(name: str) -> str:
    return "".join(_words(name))
