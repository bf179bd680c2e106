"""What about the bad nodes is bad: something that they share, one NIC, or only the path between two."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Sequence

from ncdiag.bandwidth.isolation.board import VOTES, Board, Pair, Verdict
from ncdiag.bandwidth.isolation.chance import CERTAIN, chance

MINGLES = 6
"""Rounds in which bad nodes are tried with each other."""
MORE_VOTES = 4
"""Tests of a slow pair of two good nodes once more, where only some of all pairs were measured."""
CONTROLS = 8
"""Known-good pairs that are measured beside a test over one NIC, to know what is usual there."""


def _is_low(board: Board, value: float | None, usual: float | None, *nodes: str) -> bool:
    """Nearer to what these bad nodes give than to what is usual."""
    ratios = [statistics.median(board.standing[node].ratios) for node in nodes if board.standing[node].ratios]
    level = math.sqrt(min(max(ratios, default=0.0), 1.0))
    return value is None or usual is None or value < level * usual


def mingle(board: Board) -> Iterator[list[Pair]]:
    """Bad nodes with each other, as far as they have not met: who is fast together shares what is slow."""
    alive = board.alive()
    for _ in range(MINGLES):
        tests = board.matching(alive, again=False)
        if not tests:
            return
        yield tests


def set_groups(board: Board) -> None:
    """From all pairs of bad nodes so far."""
    board.groups = []
    alive = board.alive()
    values = _among(board, alive)
    fast = [test for test, value in values if not _is_low(board, value, board.usual, test.one, test.other)]
    for company in board.companies(alive, fast):
        members = [node for node in company if _belongs(board, node, company, values)]
        if len(members) > 1:
            board.groups.append(members)


def _among(board: Board, nodes: Collection[str]) -> list[tuple[Pair, float | None]]:
    return [(test, value) for test, value in board.results if not test.rail and {test.one, test.other} <= set(nodes)]


def _belongs(board: Board, node: str, company: Collection[str], values: Sequence[tuple[Pair, float | None]]) -> bool:
    """One fast test may be chance where those with others of the company are slow."""
    own = [(test, value) for test, value in values if node in (test.one, test.other) and test.partner(node) in company]
    low = [_is_low(board, value, board.usual, test.one, test.other) for test, value in own]
    return 2 * sum(low) <= len(low)


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
    for _ in range(VOTES if board.few else MORE_VOTES):
        tests = _disjoint(open_)
        if not tests:
            return
        yield tests
        open_ = [test for test in tests if board.is_slow(board.answers.get(test))]
    for test in open_:
        values = _together(board, test)
        if board.few or chance(values, _without(board.population, values)) < CERTAIN / len(board.alike):
            ratio = statistics.median(value for value in values if value) if any(values) else None
            board.verdicts.append(Verdict("path", (test.one, test.other), (), ratio, ratio is None, len(values)))


def _together(board: Board, test: Pair) -> list[float]:
    """What the two had with each other, over what is usual; 0: stuck."""
    both = {test.one, test.other}
    found = [value for other, value in board.results if not other.rail and {other.one, other.other} == both]
    return [(value or 0.0) / (board.usual or 1.0) for value in found]


def _without(population: Sequence[float], values: Sequence[float]) -> list[float]:
    left = list(population)
    for value in values:
        if value in left:
            left.remove(value)
    return left


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
