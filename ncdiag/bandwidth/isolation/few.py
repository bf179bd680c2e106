"""Few nodes: all pairs, in rounds of disjoint ones."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ncdiag.bandwidth.isolation.board import VOTES, Board, Pair


def table(board: Board) -> Iterator[list[Pair]]:
    """All pairs. Who is fast with somebody belongs together; the largest such company is healthy, or none is known to be."""
    for pairs in round_robin(board.nodes):
        yield [Pair(one, other) for one, other in pairs]
    board.usual = max((value for _, value in board.results if value), default=None)
    companies = _companies(board)
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


def _companies(board: Board) -> list[tuple[str, ...]]:
    """Nodes that are joined by fast pairs, the largest company first."""
    together = {node: {node} for node in board.nodes}
    for test, value in board.results:
        if not board.is_slow(value):
            joined = together[test.one] | together[test.other]
            for node in joined:
                together[node] = joined
    return sorted({tuple(sorted(members)) for members in together.values()}, key=len, reverse=True)


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
