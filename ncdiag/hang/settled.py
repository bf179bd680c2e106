"""Guesses beside an answer: what is only possible says nothing more once something surer explains what is seen, and is told as seen with it."""

from __future__ import annotations

from typing import List, Sequence

from ncdiag.explain import SECONDARY_LIMIT, brings_about
from ncdiag.hang.claims import POSSIBLE, SURE
from ncdiag.model import Cause


def settled(causes: Sequence[Cause], guesses: Sequence[Cause]) -> List[Cause]:
    """`causes`, best first, without those that the first one leaves nothing to explain: of `guesses`, which were made without the processes, all that are
    only possible; beside a sure one whatever is only possible and would not bring it about."""
    first = causes[0]
    if first.confidence == POSSIBLE or any(first is guess for guess in guesses):
        mere: List[Cause] = []
    else:
        mere = [cause for cause in causes[1:] if any(cause is guess for guess in guesses)]
    if first.confidence == SURE:
        mere += [cause for cause in causes[1:] if not brings_about(cause.cause, first.cause)]
    mere = [cause for cause in mere if cause.confidence == POSSIBLE]
    for item in (item for cause in mere for item in cause.evidence[:1]):
        if item not in (*first.evidence, *first.secondary, *first.also_seen) and len(first.also_seen) < SECONDARY_LIMIT:
            first.also_seen.append(item)
    return [cause for cause in causes if not any(cause is one for one in mere)]
