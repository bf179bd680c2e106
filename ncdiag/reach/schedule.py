"""Rounds of disjoint pairs: no node is ever in two pairs at a time. Pure; travels to nodes, which all work out the same rounds.

Few nodes: every pair once (the circle method). Many: neighbours first, then distances of 2, 4, 8 … in both phases, which cross every
border between racks, rails and subnets several times, then random matchings.
"""

from __future__ import annotations

import random
from typing import Dict, Iterator, List, Tuple

Round = List[Tuple[int, int]]


def rounds(count: int, limit: int, seed: int = 0) -> List[Round]:
    """At most `limit` rounds over nodes 0 … count-1; all pairs where they fit."""
    if count < 2:
        return []
    if count - 1 + count % 2 <= limit:
        return list(_circle(count))
    found = list(_doublings(count))[:limit]
    source = random.Random(seed)
    while len(found) < limit:
        found.append(_matching(count, source))
    return found


def partners(pairs: Round) -> Dict[int, int]:
    """Node -> its partner in a round, both ways."""
    return {**dict(pairs), **{second: first for first, second in pairs}}


def _circle(count: int) -> Iterator[Round]:
    """Round robin: the last stands still, the others turn; an odd one sits out."""
    size = count + count % 2
    for turn in range(size - 1):
        pairs = [(turn % (size - 1), size - 1)]
        pairs += [((turn + step) % (size - 1), (turn - step) % (size - 1)) for step in range(1, size // 2)]
        yield [(min(pair), max(pair)) for pair in pairs if max(pair) < count]


def _doublings(count: int) -> Iterator[Round]:
    distance = 1
    while distance < count:
        for phase in (0, 1):
            pairs = [(low, low + distance) for low in range(count - distance) if low // distance % 2 == phase]
            if pairs:
                yield pairs
        distance *= 2


def _matching(count: int, source: random.Random) -> Round:
    order = list(range(count))
    source.shuffle(order)
    couples = [order[at : at + 2] for at in range(0, count - 1, 2)]
    return [(min(pair), max(pair)) for pair in couples]
