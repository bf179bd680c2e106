"""Few nodes: all pairs, in rounds of disjoint ones, and votes against a threshold."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from ncdiag.bandwidth.isolation.board import VOTES, Board, Pair


def search(board: Board) -> Iterator[list[Pair]]:
    """All pairs, then whoever is not of the healthy with these, until the votes agree."""
    yield from _table(board)
    yield from _retest(board, [node for node in board.nodes if board.standing[node].screen_slow])


def _table(board: Board) -> Iterator[list[Pair]]:
    """All pairs. Who is fast with somebody belongs together; the largest such company is healthy, or none is known to be."""
    for pairs in round_robin(board.nodes):
        yield [Pair(one, other) for one, other in pairs]
    board.usual = max((value for _, value in board.results if value), default=None)
    companies = board.companies(board.nodes, [test for test, value in board.results if not board.is_slow(value)])
    healthy = companies[0] if len(companies[0]) > 1 else ()
    within = [(test, value) for test, value in board.results if test.one in healthy and test.other in healthy]
    slow = [board.is_slow(value) for _, value in within]
    fast = [value for (_, value), low in zip(within, slow, strict=True) if value and not low]
    board.usual = statistics.median(fast) if fast else board.usual
    board.groups += [list(members) for members in companies[1:] if len(members) > 1]
    for node in board.nodes:
        board.standing[node].screen_slow = int(node not in healthy)
        board.standing[node].clean = VOTES if node in healthy else 0
    board.slow_pairs = [test for test, value in within if board.is_slow(value)]


def _retest(board: Board, suspects: Sequence[str]) -> Iterator[list[Pair]]:
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
        tests = [board.with_one_of(node, good) for node in waiting[: len(good)]]
        yield tests
        for test in tests:
            _vote(board, test)
        waiting = [node for node in waiting if not _is_decided(board, node)]
        waiting = [*waiting[len(tests) :], *waiting[: len(tests)]] if len(waiting) > len(good) else waiting


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


def round_robin(nodes: list[str]) -> Iterator[list[tuple[str, str]]]:
    """All pairs in rounds of disjoint ones (circle method).

    >>> [len(pairs) for pairs in round_robin(["a", "b", "c", "d"])]
    [2, 2, 2]
    """
    circle: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]
