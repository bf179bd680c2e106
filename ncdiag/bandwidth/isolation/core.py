"""The nodes that are healthy together: more than half of all, whose pairs with each other say what is usual.

Where much is bad, the middle of all values is no longer that of healthy pairs: one slow uplink of 8 nodes among 20 makes half of all pairs slow. So
the nodes whose pairs are lowest are taken off one by one, each time counting only pairs of the nodes that are left, until little more than half is
left; then all come back that are not low beside these.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Sequence

from ncdiag.bandwidth.isolation.board import LEAST_DROP, Board
from ncdiag.bandwidth.isolation.chance import SUSPECT, chance

LEAST_POPULATION = 10
"""Values of healthy pairs that are needed before anybody is held against them."""
LEAST_LEVEL = 0.8
"""What is usual, over the upper quartile of all values: where it is less, the majority is one of slow pairs, and there are faster ones."""
MOST_DROP = 0.75
"""A pair that is slower than the others by more than this is always slow."""
SIGMAS = 4.0
TURNS = 4
"""How often those that are not low are taken in and the population is learnt again."""


def learn(board: Board) -> set[str]:
    """The healthy nodes; sets what is usual and the population by their pairs. Empty where no majority is known yet that fits together."""
    core = majority(board)
    for _ in range(TURNS):
        if not take_population(board, core):
            core = set()
            break
        ratios = board.ratios({node for node in board.nodes if node not in core})
        grown = {node for node, found in ratios.items() if found and not _is_low(found, board.population)}
        if grown == core:
            break
        core = grown
    fast = _upper_quartile(board)
    if len(core) > len(board.nodes) // 2 and (board.usual or 0.0) >= LEAST_LEVEL * fast:
        return core
    board.usual, board.threshold = fast, LEAST_LEVEL
    return set()


def take_population(board: Board, nodes: set[str]) -> bool:
    """Learns what is usual from the pairs of these nodes with each other; False where they are too few."""
    values = [value for test, value in board.results if value and not test.rail and {test.one, test.other} <= nodes]
    if len(values) < LEAST_POPULATION:
        return False
    usual = statistics.median(values)
    deviation = 1.4826 * statistics.median(abs(math.log(value / usual)) for value in values)
    board.usual, board.population = usual, sorted(value / usual for value in values)
    board.threshold = math.exp(-min(max(SIGMAS * deviation, -math.log(1 - LEAST_DROP)), -math.log(1 - MOST_DROP)))
    return True


def _is_low(found: Sequence[float], population: Sequence[float]) -> bool:
    return statistics.median(found) < 1 - LEAST_DROP and chance(found, population) < SUSPECT


def _upper_quartile(board: Board) -> float:
    values = sorted(value for _, value in board.alike if value)
    return values[len(values) * 3 // 4] if values else 1.0


def majority(board: Board) -> set[str]:
    """A majority of the nodes: those that stay when the lowest is taken off again and again, while it is low. A value counts as at most the upper
    quartile of all, which is one of healthy pairs even where half of all pairs are slow."""
    fast = _upper_quartile(board)
    values: dict[str, list[tuple[str, float]]] = {node: [] for node in board.nodes}
    for test, value in board.alike:
        level = min((value or 0.0) / fast, 1.0)
        values[test.one].append((test.other, level))
        values[test.other].append((test.one, level))
    total = {node: sum(level for _, level in found) for node, found in values.items()}
    count = {node: len(found) for node, found in values.items()}

    def mean(node: str) -> tuple[float, str]:
        return (total[node] / count[node] if count[node] else 0.0, node)

    left = set(board.nodes)
    queue = [mean(node) for node in board.nodes]
    heapq.heapify(queue)
    while len(left) > len(board.nodes) // 2 + 1:
        told, lowest = heapq.heappop(queue)
        if lowest not in left or told != mean(lowest)[0]:
            continue  # it is there once more with what is true by now
        if count[lowest] and told >= 1 - LEAST_DROP:
            break  # nobody is low
        left.remove(lowest)
        for partner, level in values[lowest]:
            total[partner] -= level
            count[partner] -= 1
            heapq.heappush(queue, mean(partner))
    return left
