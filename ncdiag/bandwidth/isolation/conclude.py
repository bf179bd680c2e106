"""What is said of it, also where the search was ended before its end."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Collection

from ncdiag.bandwidth.isolation.board import VOTES, Board, Verdict


def conclude(board: Board) -> None:
    """Groups, bad nodes with their NICs, and those that the tests leave open."""
    grouped = set(itertools.chain.from_iterable(board.groups))
    for members in board.groups:
        ratios = [ratio for node in members for ratio in board.standing[node].ratios]
        board.verdicts.append(
            Verdict("group", tuple(members), (), statistics.median(ratios) if ratios else None, False, len(ratios))
        )
    for node in board.bad:
        if node not in grouped:
            rails = tuple(board.bad_rails.get(node, ()))
            some = 0 < len(rails) < len(board.rails.get(node, ()))
            board.verdicts.append(_verdict(board, "rail" if some else "node", node, rails if some else ()))
    board.verdicts += [_verdict(board, "unsure", node) for node in board.open]


def _verdict(board: Board, kind: str, node: str, rails: tuple[str, ...] = ()) -> Verdict:
    standing = board.standing[node]
    ratio = statistics.median(standing.ratios) if standing.ratios else None
    stuck = bool(standing.stuck) and not standing.ratios
    return Verdict(kind, (node,), rails, ratio, stuck, len(standing.ratios) + standing.stuck)


def conclude_early(board: Board) -> None:
    """No round is left: what is known so far."""
    if board.bad or board.open:
        conclude(board)
        return
    told = {node for verdict in board.verdicts for node in verdict.nodes}
    for node, standing in board.standing.items():
        if node not in told and standing.slow:
            board.verdicts.append(_verdict(board, "node" if standing.slow >= VOTES else "unsure", node))


def conclude_stuck(board: Board) -> None:
    """A pair that got stuck is evidence that no later success takes back. Those that no verdict explains point to nodes of which every pair got
    stuck, two at least with partners of which that cannot be said; else the pairs are told."""
    ended: dict[frozenset[str], list[bool]] = {}
    for test, value in board.results:
        if not test.rail:
            ended.setdefault(frozenset((test.one, test.other)), []).append(value is not None)
    clean = set(itertools.chain.from_iterable(pair for pair, found in ended.items() if all(found)))
    stuck = [pair for pair, found in ended.items() if not all(found) and not _is_explained(board, pair)]
    count = Counter(itertools.chain.from_iterable(stuck))
    suspects = {node for node, pairs in count.items() if node not in clean and pairs > 1}
    excused = Counter(node for pair in stuck for node in pair & suspects if not pair - {node} <= suspects)
    for node, pairs in excused.items():
        if pairs > 1:
            board.verdicts = [one for one in board.verdicts if one.nodes != (node,)]
            tests = sum(len(found) for pair, found in ended.items() if node in pair)
            board.verdicts.append(Verdict("node", (node,), (), None, True, tests))
    left = [pair for pair in stuck if not _is_explained(board, pair)]
    board.verdicts += [Verdict("stuck", tuple(sorted(pair)), (), None, True, len(ended[pair])) for pair in left]


def _is_explained(board: Board, pair: Collection[str]) -> bool:
    return any(one.explains(pair) for one in board.verdicts)
