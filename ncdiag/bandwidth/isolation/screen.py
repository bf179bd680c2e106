"""Many nodes: everybody with somebody, more often where the values scatter."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from ncdiag.bandwidth.isolation import noisy
from ncdiag.bandwidth.isolation.board import LEAST_DROP, VOTES, Board, Pair

SCREENS = 2
"""Rounds in which everybody is tested with somebody."""
MORE_SCREENS = 4
MOST_DROP = 0.75
"""A pair that is slower than the others by more than this is always slow."""
SIGMAS = 4.0
MANY, FREQUENT, SCATTERED = 40, 0.03, 0.06
"""Where so many tests have so great a share of slow ones, or any number such a deviation of logarithms, noise is judged by its own distribution
instead of by votes."""


def screen(board: Board) -> Iterator[list[Pair]]:
    """Suspect is who was in a slow pair; where it is noisy, who is low in the population for chance."""
    done = 0
    while done < SCREENS + min(int(board.deviation / 0.05), MORE_SCREENS):
        yield board.matching(board.nodes)
        done += 1
        _learn_usual(board)
    slow = [test for test, value in board.results if board.is_slow(value)]
    frequent = len(board.results) >= MANY and len(slow) > FREQUENT * len(board.results)
    board.noisy = len(board.results) >= noisy.LEAST_POPULATION and (frequent or board.deviation > SCATTERED)
    if board.noisy:
        noisy.suspect(board)
        return
    for node in board.nodes:
        low = any(node in (test.one, test.other) for test in slow)
        board.standing[node].screen_slow, board.standing[node].clean = int(low), 0 if low else VOTES
    board.slow_pairs = slow


def _learn_usual(board: Board) -> None:
    """What is usual (the median), how far down noise goes, and the population that a value is compared with."""
    values = sorted(value for test, value in board.results if value and not test.rail)
    if not values:
        return
    board.usual = statistics.median(values)
    board.deviation = 1.4826 * statistics.median(abs(math.log(value / board.usual)) for value in values)
    board.threshold = math.exp(-min(max(SIGMAS * board.deviation, -math.log(1 - LEAST_DROP)), -math.log(1 - MOST_DROP)))
    board.population = [value / board.usual for value in values]
