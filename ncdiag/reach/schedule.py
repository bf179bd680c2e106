"""Rounds of disjoint pairs: no node is ever in two pairs at a time. Pure; travels to nodes, which all work out the same rounds.

Few nodes: every pair once (the circle method). Many: neighbours first, then distances of 2, 4, 8 … in both phases, which cross every
border between racks, rails and subnets several times, then random matchings. Two chosen sets: every pair between them.
"""

from __future__ import annotations

import random
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

Round = List[Tuple[int, int]]


def rounds(
    count: int, limit: Optional[int], seed: int = 0, between: Optional[Sequence[Sequence[int]]] = None
) -> List[Round]:
    """At most `limit` rounds over nodes 0 … count-1; all pairs where they fit, or where `limit` is None.

    `between`: two sets of nodes, of which each node of the one is tested with each of the other, however many rounds that takes.
    """
    if count < 2:
        return []
    if between is not None:
        return _between(count, set(between[0]), set(between[1]))
    if limit is None or count - 1 + count % 2 <= limit:
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


def _between(count: int, first: Set[int], second: Set[int]) -> List[Round]:
    """Sets that share no node: the smaller walks along the larger. Others: their pairs out of all pairs of their nodes."""
    nodes = sorted(number for number in first | second if number < count)
    few, many = sorted((sorted(first), sorted(second)), key=len)
    if not first & second:
        return [
            [
                (min(one, other), max(one, other))
                for index, one in enumerate(few)
                for other in [many[(index + turn) % len(many)]]
            ]
            for turn in range(len(many) if few else 0)
        ]
    found = []
    for pairs in _circle(len(nodes)):
        named = [(nodes[low], nodes[high]) for low, high in pairs]
        wanted = [
            (low, high) for low, high in named if (low in first and high in second) or (low in second and high in first)
        ]
        if wanted:
            found.append(wanted)
    return found


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
