"""Bad nodes in noise: by how likely a healthy node would have values as low, not by votes against a threshold."""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Iterator, Sequence

from ncdiag.bandwidth.isolation.board import LEAST_DROP, VOTES, Board, Pair

LEAST_POPULATION = 10
SUSPECT, CLEARED, CERTAIN = 0.2, 0.1, 0.01
"""How likely a healthy node would have values as low: below the first a node is suspect, above the second it is cleared; below the third over the
square of the number of nodes it is bad, so that hardly one run in a hundred blames anybody who is not, however many nodes there are."""
BEST = 3
"""How many of a node's best values are held against all others' noise."""
MINGLES = 6
"""Rounds in which bad nodes are tried with each other: what is kept for them when the others are tested again."""


def suspect(board: Board) -> None:
    """After the screening: who is low in the population for chance."""
    ratios = board.ratios(())
    for node in board.nodes:
        found = ratios[node] or [1.0]
        low = max(found) < 1 - LEAST_DROP or statistics.median_low(found) < board.threshold
        low = low or (chance(found, board.population) < SUSPECT and min(found) < 1 - LEAST_DROP)
        board.standing[node].screen_slow, board.standing[node].clean = int(low), 0 if low else VOTES


def retest(board: Board, suspects: Sequence[str]) -> Iterator[list[Pair]]:
    """Every suspect with known-good partners, a new one each round, until chance is ruled out or likely."""
    screened = len(board.results)
    waiting = list(suspects)
    while waiting and board.rounds < board.limit - MINGLES - 1:
        good = [node for node in board.good() if node not in waiting]
        board.random.shuffle(good)
        tests = [Pair(node, good.pop()) for node in waiting if good]
        if not tests:
            return
        yield tests
        ratios = board.ratios({node for node in suspects if board.standing[node].clean < VOTES})
        for node in suspects:
            _weigh(board, node, ratios[node])
        _learn_healthy(board, screened)
        rest = [node for node in waiting if max(board.standing[node].slow, board.standing[node].clean) < VOTES]
        waiting = rest[len(tests) :] + rest[: len(tests)]


def _learn_healthy(board: Board, screened: int) -> None:
    """The population without the bad nodes known so far: where there are many, their pairs make low values look usual. Of the screening alone,
    which tested everybody alike."""
    bad = {node for node, standing in board.standing.items() if standing.slow >= VOTES}
    healthy = [value for test, value in board.results[:screened] if value and not {test.one, test.other} & bad]
    if len(healthy) >= LEAST_POPULATION:
        board.usual = statistics.median(healthy)
        board.population = sorted(value / board.usual for value in healthy)


def _weigh(board: Board, node: str, found: Sequence[float]) -> None:
    standing = board.standing[node]
    standing.ratios = [ratio for ratio in found if ratio]
    standing.stuck = sum(not ratio for ratio in found)
    if not found:
        return
    likely = chance(found, board.population)
    if likely < CERTAIN / len(board.nodes) ** 2 and statistics.median(found) < 1 - LEAST_DROP:
        standing.slow = VOTES
    elif len(found) >= VOTES and max(found) >= 1 - LEAST_DROP:
        standing.clean = VOTES if likely > CLEARED or statistics.median(found) >= 1 - LEAST_DROP else standing.clean


def chance(ratios: Sequence[float], population: Sequence[float]) -> float:
    """How likely a healthy node has values as low as these together, from their ranks in the (sorted) population of pairs without bad nodes, which
    holds for noise of any shape: by Fisher's method, or by its best ones, whichever is least. Noise slows a healthy pair now and then; a bad
    node has hardly ever a good value, but with others that share what is slow."""
    if not ratios:
        return 1.0
    size = len(population) + 1
    ranks = [(bisect.bisect_right(population, ratio) + 1) / (size + 1) for ratio in ratios]
    half = -sum(map(math.log, ranks))
    term = total = math.exp(-half)  # the chi-squared distribution with an even number of degrees of freedom
    for index in range(1, len(ranks)):
        term *= half / index
        total += term
    count, ranks = len(ranks), sorted(ranks, reverse=True)
    for better, rank in enumerate(ranks[:BEST]):  # all but `better` of them are at most this
        total = min(total, sum(math.comb(count, n) * (1 - rank) ** n * rank ** (count - n) for n in range(better + 1)))
    return float(total)
