"""The search from its first round to its verdicts."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

from ncdiag.bandwidth.isolation import few, many, origin
from ncdiag.bandwidth.isolation.board import Board, Pair, Verdict
from ncdiag.bandwidth.isolation.conclude import conclude, conclude_early, conclude_stuck


def most_rounds(nodes: int) -> int:
    """The bound that is kept: 2·log2(N) + 10."""
    return int(2 * math.log2(max(nodes, 2)) + 10)


class Search:
    """See the package. `nodes` in any order; `rails`: the NICs of a node that can be chosen one by one; `slow_below`: the share of what
    is usual below which a pair is slow, where there are so few nodes (FEW) that noise cannot be told from the values themselves."""

    def __init__(
        self,
        nodes: Sequence[str],
        rails: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        slow_below: float = 0.85,
    ) -> None:
        self.limit = most_rounds(len(dict.fromkeys(nodes)))
        self._board = Board(nodes, rails or {}, seed, slow_below, self.limit)
        self._steps = self._plan(self._board)
        self._over = False

    @property
    def nodes(self) -> list[str]:
        return self._board.nodes

    @property
    def rounds(self) -> int:
        """Rounds that were asked for so far."""
        return self._board.rounds

    @property
    def usual(self) -> float | None:
        """GB/s of a healthy pair; None where nothing was measured."""
        return self._board.usual

    @property
    def threshold(self) -> float:
        """The share of the usual below which a pair is slow."""
        return self._board.threshold

    @property
    def results(self) -> list[tuple[Pair, float | None]]:
        return self._board.results

    @property
    def verdicts(self) -> list[Verdict]:
        return self._board.verdicts

    def next_round(self) -> list[Pair]:
        """Disjoint tests to be run side by side; empty when the search is over."""
        if self._over:
            return []
        tests = next(self._steps, [])
        if not tests:
            self._over = True
            conclude_stuck(self._board)
        elif self._board.rounds >= self.limit:
            self._end()
            return []
        self._board.rounds += bool(tests)
        return tests

    def take(self, answers: Mapping[Pair, float | None]) -> None:
        """GB/s of every test of the round; None: stuck."""
        self._board.take(answers)

    def stop(self) -> None:
        """No round is run any more, the one that was asked for last neither: what is known so far is concluded."""
        self._board.rounds -= 1
        self._end()

    def _end(self) -> None:
        self._over = True
        self._steps.close()
        if not self._board.few:
            self._settle()
        conclude_early(self._board)
        conclude_stuck(self._board)

    def _settle(self) -> None:
        self._board.settle()
        origin.set_groups(self._board)

    def _plan(self, board: Board) -> Generator[list[Pair], None, None]:
        if board.few:
            yield from few.search(board)
            board.settle()
        else:
            yield from many.search(board)
            yield from origin.mingle(board)
            self._settle()
        yield from origin.by_rail(board)
        yield from origin.paths(board)
        conclude(board)
