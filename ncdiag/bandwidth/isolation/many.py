"""Many nodes: everybody with somebody, more often where the values scatter, then the doubtful with healthy ones."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from ncdiag.bandwidth.isolation.board import LEAST_DROP, VOTES, Board, Pair
from ncdiag.bandwidth.isolation.chance import CERTAIN, CLEARED, chance
from ncdiag.bandwidth.isolation.core import learn, take_population

SCREENS = 2
"""Rounds in which everybody is tested with somebody."""
SCATTER, MORE_SCREENS = 0.05, 4
"""For each such deviation of the values one more, and so many at most."""
MANY, MOST_ALIKE = 0.15, 9
"""Where more than this share of the nodes is doubtful, everybody is tested once more, up to this round: which nodes are healthy is seen by pairs that
nobody has chosen."""
ENOUGH = 40
"""Values of healthy pairs beside which a low one is seen to be rare."""
FREQUENT = 0.03
"""Where a greater share of the pairs is slow though both nodes are good, it is noise."""


def search(board: Board) -> Iterator[list[Pair]]:
    """Everybody with somebody while many are doubtful, then whoever is neither bad nor cleared with healthy partners, until chance is ruled out or
    likely."""
    for done in range(SCREENS + MORE_SCREENS):
        if done >= SCREENS + _scatter(board) // SCATTER:
            break
        yield from _everybody(board)
    _weigh(board)
    while waiting := [node for node, one in board.standing.items() if max(one.slow, one.clean) < VOTES]:
        good = [node for node, one in board.standing.items() if one.healthy and one.clean >= VOTES]
        if (len(waiting) > MANY * len(board.nodes) and board.rounds < MOST_ALIKE) or not good:
            yield from _everybody(board)
        else:
            yield _with_good(board, waiting, good)
        _weigh(board)
    board.slow_pairs = _slow_pairs(board)


def _slow_pairs(board: Board) -> list[Pair]:
    """Of two good nodes; none where so many are slow that it is noise."""
    clean = {node for node, one in board.standing.items() if one.clean >= VOTES}
    slow = [test for test, value in board.alike if board.is_slow(value) and {test.one, test.other} <= clean]
    return slow if len(slow) <= max(FREQUENT * len(board.alike), 1) else []


def _everybody(board: Board) -> Iterator[list[Pair]]:
    yield board.matching(board.nodes)
    board.alike += board.answers.items()


def _scatter(board: Board) -> float:
    """Deviation of the logarithms of the values, from their median."""
    logs = [math.log(value) for _, value in board.alike if value]
    middle = statistics.median(logs) if logs else 0.0
    return 1.4826 * statistics.median(abs(value - middle) for value in logs) if logs else 0.0


def _with_good(board: Board, waiting: list[str], good: list[str]) -> list[Pair]:
    """Doubtful ones with good ones; meanwhile bad ones with each other, and good ones too while few values say what is usual."""
    board.random.shuffle(good)
    board.random.shuffle(waiting)
    tests = [board.with_one_of(node, good) for node in waiting[: len(good)]]
    if len(board.population) < ENOUGH:
        tests += board.matching(good, again=False)
    return tests + board.matching(board.alive(), again=False)


def _weigh(board: Board) -> None:
    """How every node stands beside the healthy ones, from all pairs so far."""
    core = learn(board)
    ratios = board.ratios({node for node in board.nodes if node not in core})
    accused = {node for node, found in ratios.items() if _is_bad(board, found)}
    for node, standing in board.standing.items():
        found = ratios[node]
        standing.healthy = node in core
        standing.ratios = [ratio for ratio in found if ratio]
        standing.stuck = sum(not ratio for ratio in found)
        middle = statistics.median(found) if found else 1.0
        good = len(found) >= VOTES and max(found) >= 1 - LEAST_DROP
        good = good and (middle >= 1 - LEAST_DROP or chance(found, board.population) > CLEARED)
        standing.clean = VOTES * good
        standing.screen_slow = int(not good)
    if accused:
        take_population(board, {node for node in board.nodes if node not in accused})
        ratios = board.ratios(accused)
    for node, standing in board.standing.items():
        standing.slow = VOTES * (node in accused and _is_bad(board, ratios[node]))


def _is_bad(board: Board, found: Sequence[float]) -> bool:
    """Lower than noise makes hardly one healthy node in a thousand runs, and not by some of its values only."""
    if not found or sorted(found)[len(found) * 3 // 4] >= 1 - LEAST_DROP:
        return False
    return chance(found, board.population) < CERTAIN / len(board.nodes) ** 2
