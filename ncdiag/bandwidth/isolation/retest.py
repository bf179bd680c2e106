"""Suspects with known-good partners, until the votes agree."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Sequence

from ncdiag.bandwidth.isolation.board import VOTES, Board, Pair


def retest(board: Board, suspects: Sequence[str]) -> Iterator[list[Pair]]:
    """Every suspect with known-good partners until its votes agree."""
    for node in suspects:
        board.standing[node].clean = 0
    waiting = list(suspects)
    turns = 0
    while waiting and turns < 3 * VOTES + len(suspects):
        turns += 1
        good = [node for node in board.good() if node not in waiting]
        if not good:
            _by_table(board, waiting)
            return
        board.random.shuffle(good)
        tests = [_with_one_of(board, node, good) for node in waiting[: len(good)]]
        yield tests
        for test in tests:
            _vote(board, test)
        waiting = [node for node in waiting if not _is_decided(board, node)]
        waiting = [*waiting[len(tests) :], *waiting[: len(tests)]] if len(waiting) > len(good) else waiting


def _with_one_of(board: Board, node: str, good: list[str]) -> Pair:
    """One that it has not met, where there is one; it is taken from `good`."""
    met = board.standing[node].partners
    partner = good.pop(next((i for i, other in enumerate(good) if other not in met), len(good) - 1))
    board.meet(node, partner)
    return Pair(node, partner)


def _is_decided(board: Board, node: str) -> bool:
    standing = board.standing[node]
    return standing.slow >= VOTES or standing.clean >= board.clean_votes


def _by_table(board: Board, waiting: Sequence[str]) -> None:
    """No node is known to be good: what the pairs have said already has to do."""
    for node in waiting:
        values = [value for test, value in board.results if node in (test.one, test.other)]
        standing = board.standing[node]
        standing.stuck = sum(value is None for value in values)
        standing.ratios = [value / board.usual for value in values if value is not None and board.usual]
        standing.slow = VOTES if values and all(board.is_slow(value) for value in values) else 1


def _vote(board: Board, test: Pair) -> None:
    standing, value = board.standing[test.one], board.answers.get(test)
    if board.is_slow(value):
        standing.slow += 1
        standing.stuck += value is None
    else:
        standing.clean += 1
    if value is not None and board.usual:
        standing.ratios.append(value / board.usual)


def settle(board: Board, suspects: Sequence[str]) -> None:
    """Who of them is bad, and who is neither bad nor cleared."""
    accused = [node for node in suspects if board.standing[node].slow >= VOTES]
    board.bad = [node for node in accused if _is_mostly_slow(board, node, accused)]
    board.open = [node for node in suspects if node not in board.bad and board.standing[node].clean < board.clean_votes]


def _is_mostly_slow(board: Board, node: str, accused: Collection[str]) -> bool:
    """Two slow tests may be chance where as many with others are good; of few nodes all pairs were tested, and that is told by itself."""
    if board.noisy or board.few or board.standing[node].stuck:
        return True
    found = board.ratios(accused)[node]
    return not found or statistics.median(found) < board.threshold
