"""What about the bad nodes is bad: something that they share, one NIC, or only the path between two."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

from ncdiag.bandwidth.isolation.board import VOTES, Board, Pair, Verdict
from ncdiag.bandwidth.isolation.noisy import MINGLES

CONTROLS = 8
"""Known-good pairs that are measured beside a test over one NIC, to know what is usual there."""


def _is_low(board: Board, value: float | None, usual: float | None, *nodes: str) -> bool:
    """Nearer to what these bad nodes give than to what is usual."""
    ratios = [statistics.median(board.standing[node].ratios) for node in nodes if board.standing[node].ratios]
    level = math.sqrt(min(max(ratios, default=0.0), 1.0))
    return value is None or usual is None or value < level * usual


def mingle(board: Board) -> Iterator[list[Pair]]:
    """Bad nodes with each other: who is fast together shares what is slow."""
    alive = [node for node in board.bad if board.standing[node].stuck < board.standing[node].slow]
    together = {node: {node} for node in alive}
    for _ in range(min(MINGLES, len(alive) - 1)):
        tests = board.matching(alive)
        if not tests:
            return
        yield tests
        for test in tests:
            if not _is_low(board, board.answers.get(test), board.usual, test.one, test.other):
                joined = together[test.one] | together[test.other]
                for node in joined:
                    together[node] = joined
    for members in {tuple(sorted(group)) for group in together.values()}:
        if len(members) > 1:
            board.groups.append(list(members))


def by_rail(board: Board) -> Iterator[list[Pair]]:
    """Bad nodes over one NIC at a time, with known-good partners, beside good pairs over the same NIC; what was low once more."""
    grouped = set(itertools.chain.from_iterable(board.groups))
    bad = [node for node in board.bad if node not in grouped]
    todo = {node: list(board.rails[node]) for node in bad if len(board.rails.get(node, ())) > 1}
    for _ in range(2):
        low: dict[str, list[str]] = {}
        for rail in dict.fromkeys(rail for rails in todo.values() for rail in rails):
            good = [node for node in board.good() if rail in board.rails.get(node, ())]
            board.random.shuffle(good)
            tests = [Pair(node, good.pop(), rail) for node, rails in todo.items() if rail in rails and good]
            controls = [Pair(good.pop(), good.pop(), rail) for _ in range(CONTROLS) if len(good) > 1]
            if not tests:
                continue
            yield tests + controls
            usual = [value for value in (board.answers.get(test) for test in controls or tests) if value]
            centre = statistics.median(usual) if usual else None
            for test in tests:
                if _is_low(board, board.answers.get(test), centre, test.one):
                    low.setdefault(test.one, []).append(rail)
        todo = {node: rails for node, rails in low.items() if len(rails) < len(board.rails[node])}
    board.bad_rails.update(todo)


def paths(board: Board) -> Iterator[list[Pair]]:
    """Slow pairs whose nodes both turned out good, with each other again."""
    open_ = [
        test for test in board.slow_pairs if not {test.one, test.other} & set(board.bad) and _both_clean(board, test)
    ]
    for _ in range(VOTES):
        tests = _disjoint(open_)
        if not tests:
            return
        yield tests
        open_ = [test for test in tests if board.is_slow(board.answers.get(test))]
    for test in open_:
        value = board.answers.get(test)
        ratio = value / board.usual if value is not None and board.usual else None
        board.verdicts.append(Verdict("path", (test.one, test.other), (), ratio, value is None, 1 + VOTES))


def _disjoint(tests: Sequence[Pair]) -> list[Pair]:
    taken: set[str] = set()
    chosen = []
    for test in tests:
        if not {test.one, test.other} & taken:
            taken |= {test.one, test.other}
            chosen.append(test)
    return chosen


def _both_clean(board: Board, test: Pair) -> bool:
    return all(board.standing[node].clean >= board.clean_votes for node in (test.one, test.other))
