"""Which node, NIC or path makes it slow: disjoint pairs in rounds, suspects tested again with known-good partners. Pure: no clock, no machine.

    search = Search(nodes, rails={"gpu07": ("mlx5_0", "mlx5_1")}, seed=1)
    while tests := search.next_round():
        search.take({test: gbytes_s or None for test in tests})     # None: it got stuck and was given up
    search.verdicts                                                  # who is bad, and in what way

A clean pair clears both of its nodes, a slow pair makes both suspect; a suspect that is slow with two known-good partners is bad. Bad nodes are
then tried with each other (good among themselves: what they share is bad, not they), over one NIC at a time, and slow pairs of two good nodes
once more with each other (the path between them).
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
import statistics
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

SCREENS = 2
"""Rounds in which everybody is tested with somebody."""
LEAST_DROP, MOST_DROP = 0.10, 0.75
"""A pair that is slower than the others by less than this is never slow; by more than that it always is."""
SIGMAS = 4.0
SUSPECT, CLEARED, CERTAIN = 0.2, 0.1, 0.01
"""How likely a healthy node would have values as low: below the first a node is suspect, above the second it is cleared; below the third over the
square of the number of nodes it is bad, so that hardly one run in a hundred blames anybody who is not, however many nodes there are."""
MANY, FREQUENT, SCATTERED = 40, 0.03, 0.06
"""Where so many tests have so great a share of slow ones, or any number such a deviation of logarithms, noise is judged by its own distribution
instead of by votes."""
BEST = 3
"""How many of a node's best values are held against all others' noise."""
LEAST_POPULATION = 10
MORE_SCREENS = 4
MINGLES = 6
"""Rounds in which bad nodes are tried with each other: what is kept for them when the others are tested again."""
FEW = 8
"""Up to so many nodes, all pairs are tested."""
VOTES = 2
"""Tests with known-good partners that must agree."""
CONTROLS = 8
"""Known-good pairs that are measured beside a test over one NIC, to know what is usual there."""


def most_rounds(nodes: int) -> int:
    """The bound that is kept: 2·log2(N) + 10."""
    return int(2 * math.log2(max(nodes, 2)) + 10)


@dataclass(frozen=True)
class Pair:
    """One pair, all its NICs or one."""

    one: str
    other: str
    rail: str | None = None

    def partner(self, node: str) -> str:
        return self.other if node == self.one else self.one


@dataclass(frozen=True)
class Verdict:
    """What was found. `nodes` has one name, the two of a path, or the members of a group."""

    kind: str
    """`node`: slow with every partner, or in whatever got stuck. `rail`: over these NICs only. `path`: only these two with each other.
    `group`: fast among themselves, slow towards the others. `stuck`: these two got stuck, and no node explains it. `unsure`: the tests
    contradict each other."""
    nodes: tuple[str, ...]
    rails: tuple[str, ...] = ()
    ratio: float | None = None
    """Measured over usual, median of its tests; None: it got stuck."""
    stuck: bool = False
    tests: int = 0

    def explains(self, pair: Collection[str]) -> bool:
        """Whether it says why this pair got stuck."""
        if self.kind in ("path", "stuck"):
            return set(self.nodes) == set(pair)
        return self.kind != "unsure" and not set(self.nodes).isdisjoint(pair)


@dataclass
class _Node:
    screen_slow: int = 0
    clean: int = 0
    """Votes with known-good partners, or in the screening."""
    slow: int = 0
    ratios: list[float] = field(default_factory=list)
    stuck: int = 0
    partners: set[str] = field(default_factory=set)


class Search:
    """See the module. `nodes` in any order; `rails`: the NICs of a node that can be chosen one by one; `slow_below`: the share of what
    is usual below which a pair is slow, where there are so few nodes (FEW) that noise cannot be told from the values themselves."""

    def __init__(
        self,
        nodes: Sequence[str],
        rails: Mapping[str, Sequence[str]] | None = None,
        seed: int = 0,
        slow_below: float = 0.85,
    ) -> None:
        self.nodes = list(dict.fromkeys(nodes))
        self.rails = {node: tuple(names) for node, names in (rails or {}).items()}
        self.rounds = 0
        self.limit = most_rounds(len(self.nodes))
        self.usual: float | None = None
        self.threshold = slow_below
        self.results: list[tuple[Pair, float | None]] = []
        self.verdicts: list[Verdict] = []
        self._random = random.Random(seed)
        self._clean_votes = (
            1 if len(self.nodes) <= FEW else VOTES
        )  # few nodes: noise only ever slows, so the best test counts
        self._state = {node: _Node() for node in self.nodes}
        self._slow_pairs: list[Pair] = []
        self._deviation = 0.0
        self._population: list[float] = []
        self._screened = 0
        self._bad: list[str] = []
        self._open: list[str] = []
        """Suspects that are neither bad nor cleared."""
        self._groups: list[list[str]] = []
        self._noisy = False
        self._steps = self._plan()
        self._over = False
        self._answers: dict[Pair, float | None] = {}

    def next_round(self) -> list[Pair]:
        """Disjoint tests to be run side by side; empty when the search is over."""
        if self._over:
            return []
        tests = next(self._steps, [])
        if not tests:
            self._over = True
            self._conclude_stuck()
        elif self.rounds >= self.limit:
            self._end()
            return []
        self.rounds += bool(tests)
        return tests

    def stop(self) -> None:
        """No round is run any more, the one that was asked for last neither: what is known so far is concluded."""
        self.rounds -= 1
        self._end()

    def _end(self) -> None:
        self._over = True
        self._steps.close()
        self._conclude_open()
        self._conclude_stuck()

    def take(self, answers: Mapping[Pair, float | None]) -> None:
        """GB/s of every test of the round; None: stuck."""
        self._answers = dict(answers)
        self.results += list(answers.items())

    # --- the plan -----------------------------------------------------------------------------------------------------------------------

    def _plan(self) -> Generator[list[Pair], None, None]:
        groups = self._groups
        if len(self.nodes) <= FEW:
            yield from self._table(groups)
        else:
            yield from self._screen()
        suspects = [node for node in self.nodes if self._state[node].screen_slow]
        if not suspects and not self._slow_pairs:
            return
        yield from self._retest_many(suspects) if self._noisy else self._retest(suspects)
        accused = [node for node in suspects if self._state[node].slow >= VOTES]
        self._bad = [node for node in accused if self._is_mostly_slow(node, accused)]
        self._open = [
            node for node in suspects if node not in self._bad and self._state[node].clean < self._clean_votes
        ]
        if len(self._bad) > 1 and len(self.nodes) > FEW:
            yield from self._mingle(groups)
        grouped = set(itertools.chain.from_iterable(groups))
        bad_rails: dict[str, list[str]] = {}
        yield from self._by_rail([node for node in self._bad if node not in grouped], bad_rails)
        yield from self._paths()
        self._conclude(bad_rails)

    def _is_mostly_slow(self, node: str, accused: Collection[str]) -> bool:
        """Two slow tests may be chance where as many with others are good; of few nodes all pairs were tested, and that is told by itself."""
        if self._noisy or len(self.nodes) <= FEW or self._state[node].stuck:
            return True
        found = self._ratios(accused)[node]
        return not found or statistics.median(found) < self.threshold

    def _matching(self, nodes: Sequence[str]) -> list[Pair]:
        """Random disjoint pairs that have not met, as far as can be; an odd one out rests."""
        order = list(nodes)
        self._random.shuffle(order)
        tests = []
        while len(order) > 1:
            one = order.pop()
            index = next((i for i, other in enumerate(order) if other not in self._state[one].partners), 0)
            other = order.pop(index)
            self._state[one].partners.add(other)
            self._state[other].partners.add(one)
            tests.append(Pair(one, other))
        return tests

    def _screen(self) -> Iterator[list[Pair]]:
        """Everybody with somebody, more often where the values scatter; suspect is who is low in the population for chance."""
        done = 0
        while done < SCREENS + self._more_screens():
            yield self._matching(self.nodes)
            done += 1
            self._learn_usual()
        self._screened = len(self.results)
        slow = [test for test, value in self.results if self._is_slow(value)]
        frequent = len(self.results) >= MANY and len(slow) > FREQUENT * len(self.results)
        self._noisy = len(self.results) >= LEAST_POPULATION and (frequent or self._deviation > SCATTERED)
        ratios = self._ratios(())
        for node in self.nodes:
            if self._noisy:
                found = ratios[node] or [1.0]
                low = max(found) < 1 - LEAST_DROP or statistics.median_low(found) < self.threshold
                low = low or (self._chance(found) < SUSPECT and min(found) < 1 - LEAST_DROP)
            else:
                low = any(node in (test.one, test.other) for test in slow)
            self._state[node].screen_slow, self._state[node].clean = int(low), 0 if low else VOTES
        self._slow_pairs = [] if self._noisy else slow

    def _learn_usual(self) -> None:
        """What is usual (the median), how far down noise goes, and the population that a value is compared with."""
        values = sorted(value for test, value in self.results if value and not test.rail)
        if not values:
            return
        self.usual = statistics.median(values)
        self._deviation = 1.4826 * statistics.median(abs(math.log(value / self.usual)) for value in values)
        self.threshold = math.exp(
            -min(max(SIGMAS * self._deviation, -math.log(1 - LEAST_DROP)), -math.log(1 - MOST_DROP))
        )
        self._population = [value / self.usual for value in values]

    def _more_screens(self) -> int:
        return min(int(self._deviation / 0.05), MORE_SCREENS)

    def _ratios(self, without: Collection[str]) -> dict[str, list[float]]:
        """Node -> measured over usual of its tests with partners that are not among `without`; 0: stuck."""
        found: dict[str, list[float]] = {node: [] for node in self.nodes}
        for test, value in self.results:
            for node in (test.one, test.other):
                if test.partner(node) not in without:
                    found[node].append((value or 0.0) / (self.usual or 1.0))
        return found

    def _chance(self, ratios: Sequence[float]) -> float:
        """How likely a healthy node has values as low as these together, from their ranks in the population of pairs without bad nodes, which
        holds for noise of any shape: by Fisher's method, or by its best ones, whichever is least. Noise slows a healthy pair now and then; a bad
        node has hardly ever a good value, but with others that share what is slow."""
        if not ratios:
            return 1.0
        size = len(self._population) + 1
        ranks = [(bisect.bisect_right(self._population, ratio) + 1) / (size + 1) for ratio in ratios]
        half = -sum(map(math.log, ranks))
        term = total = math.exp(-half)  # the chi-squared distribution with an even number of degrees of freedom
        for index in range(1, len(ranks)):
            term *= half / index
            total += term
        count, ranks = len(ranks), sorted(ranks, reverse=True)
        for better, rank in enumerate(ranks[:BEST]):  # all but `better` of them are at most this
            total = min(
                total, sum(math.comb(count, n) * (1 - rank) ** n * rank ** (count - n) for n in range(better + 1))
            )
        return float(total)

    def _retest_many(self, suspects: Sequence[str]) -> Iterator[list[Pair]]:
        """Every suspect with known-good partners, a new one each round, until chance is ruled out or likely."""
        waiting = list(suspects)
        while waiting and self.rounds < self.limit - MINGLES - 1:
            good = [node for node in self._good() if node not in waiting]
            self._random.shuffle(good)
            tests = [Pair(node, good.pop()) for node in waiting if good]
            if not tests:
                return
            yield tests
            ratios = self._ratios({node for node in suspects if self._state[node].clean < VOTES})
            for node in suspects:
                self._weigh(node, ratios[node])
            self._learn_healthy()
            done = [node for node in waiting if max(self._state[node].slow, self._state[node].clean) >= VOTES]
            rest = [node for node in waiting if node not in done]
            waiting = rest[len(tests) :] + rest[: len(tests)]

    def _learn_healthy(self) -> None:
        """The population without the bad nodes known so far: where there are many, their pairs make low values look usual. Of the screening alone,
        which tested everybody alike."""
        bad = {node for node, state in self._state.items() if state.slow >= VOTES}
        healthy = [
            value for test, value in self.results[: self._screened] if value and not {test.one, test.other} & bad
        ]
        if len(healthy) >= LEAST_POPULATION:
            self.usual = statistics.median(healthy)
            self._population = sorted(value / self.usual for value in healthy)

    def _weigh(self, node: str, found: Sequence[float]) -> None:
        state = self._state[node]
        state.ratios = [ratio for ratio in found if ratio]
        state.stuck = sum(not ratio for ratio in found)
        if not found:
            return
        chance = self._chance(found)
        if chance < CERTAIN / len(self.nodes) ** 2 and statistics.median(found) < 1 - LEAST_DROP:
            state.slow = VOTES
        elif len(found) >= VOTES and max(found) >= 1 - LEAST_DROP:
            state.clean = VOTES if chance > CLEARED or statistics.median(found) >= 1 - LEAST_DROP else state.clean

    def _table(self, groups: list[list[str]]) -> Iterator[list[Pair]]:
        """Few nodes: all pairs. Who is fast with somebody belongs together; the largest such company is healthy, or none is known to be."""
        for pairs in round_robin(self.nodes):
            tests = [Pair(one, other) for one, other in pairs]
            yield tests
        best = max((value for _, value in self.results if value), default=None)
        self.usual = best
        together = {node: {node} for node in self.nodes}
        for test, value in self.results:
            if not self._is_slow(value):
                joined = together[test.one] | together[test.other]
                for node in joined:
                    together[node] = joined
        companies = sorted({tuple(sorted(members)) for members in together.values()}, key=len, reverse=True)
        healthy = companies[0] if len(companies[0]) > 1 else ()
        fast = [
            value
            for test, value in self.results
            if value and test.one in healthy and test.other in healthy and not self._is_slow(value)
        ]
        self.usual = statistics.median(fast) if fast else self.usual
        groups += [list(members) for members in companies[1:] if len(members) > 1]
        for node in self.nodes:
            self._state[node].screen_slow = int(node not in healthy)
            self._state[node].clean = VOTES if node in healthy else 0
        self._slow_pairs = [
            test
            for test, value in self.results
            if test.one in healthy and test.other in healthy and self._is_slow(value)
        ]

    def _is_slow(self, value: float | None, usual: float | None = None) -> bool:
        reference = usual or self.usual
        return value is None or (reference is not None and value < self.threshold * reference)

    def _is_low(self, value: float | None, usual: float | None, *nodes: str) -> bool:
        """Nearer to what these bad nodes give than to what is usual."""
        ratios = [statistics.median(self._state[node].ratios) for node in nodes if self._state[node].ratios]
        level = math.sqrt(min(max(ratios, default=0.0), 1.0))
        return value is None or usual is None or value < level * usual

    def _good(self) -> list[str]:
        """Nodes with nothing against them, those with the most tests first."""
        good = [node for node in self.nodes if not self._state[node].slow and not self._state[node].screen_slow]
        cleared = [
            node
            for node in self.nodes
            if self._state[node].screen_slow
            and self._state[node].clean >= self._clean_votes
            and not self._state[node].slow
        ]
        return good + cleared

    def _retest(self, suspects: Sequence[str]) -> Iterator[list[Pair]]:
        """Every suspect with known-good partners until its votes agree."""
        for node in suspects:
            self._state[node].clean = 0
        waiting = list(suspects)
        turns = 0
        while waiting and turns < 3 * VOTES + len(suspects):
            turns += 1
            good = [node for node in self._good() if node not in waiting]
            if not good:
                self._by_table(waiting)
                return
            self._random.shuffle(good)
            tests = []
            for node in waiting[: len(good)]:
                index = next(
                    (i for i, other in enumerate(good) if other not in self._state[node].partners), len(good) - 1
                )
                partner = good.pop(index)
                self._state[node].partners.add(partner)
                tests.append(Pair(node, partner))
            yield tests
            for test in tests:
                self._vote(test)
            done = [
                node
                for node in waiting
                if self._state[node].slow >= VOTES or self._state[node].clean >= self._clean_votes
            ]
            waiting = [node for node in waiting if node not in done]
            waiting = [*waiting[len(tests) :], *waiting[: len(tests)]] if len(waiting) > len(good) else waiting

    def _by_table(self, waiting: Sequence[str]) -> None:
        """No node is known to be good: what the pairs have said already has to do."""
        for node in waiting:
            values = [value for test, value in self.results if node in (test.one, test.other)]
            state = self._state[node]
            state.stuck = sum(value is None for value in values)
            state.ratios = [value / self.usual for value in values if value is not None and self.usual]
            state.slow = VOTES if values and all(self._is_slow(value) for value in values) else 1

    def _vote(self, test: Pair) -> None:
        state, value = self._state[test.one], self._answers.get(test)
        if self._is_slow(value):
            state.slow += 1
            state.stuck += value is None
        else:
            state.clean += 1
        if value is not None and self.usual:
            state.ratios.append(value / self.usual)

    def _mingle(self, groups: list[list[str]]) -> Iterator[list[Pair]]:
        """Bad nodes with each other: who is fast together shares what is slow."""
        alive = [node for node in self._bad if self._state[node].stuck < self._state[node].slow]
        together = {node: {node} for node in alive}
        for _ in range(min(MINGLES, len(alive) - 1)):
            tests = self._matching(alive)
            if not tests:
                return
            yield tests
            for test in tests:
                if not self._is_low(self._answers.get(test), self.usual, test.one, test.other):
                    joined = together[test.one] | together[test.other]
                    for node in joined:
                        together[node] = joined
        for members in {tuple(sorted(group)) for group in together.values()}:
            if len(members) > 1:
                groups.append(list(members))

    def _by_rail(self, bad: Sequence[str], bad_rails: dict[str, list[str]]) -> Iterator[list[Pair]]:
        """Bad nodes over one NIC at a time, with known-good partners, beside good pairs over the same NIC; what was low once more."""
        todo = {node: list(self.rails[node]) for node in bad if len(self.rails.get(node, ())) > 1}
        for _ in range(2):
            low: dict[str, list[str]] = {}
            for rail in dict.fromkeys(rail for rails in todo.values() for rail in rails):
                good = [node for node in self._good() if rail in self.rails.get(node, ())]
                self._random.shuffle(good)
                tests = [Pair(node, good.pop(), rail) for node, rails in todo.items() if rail in rails and good]
                controls = [Pair(good.pop(), good.pop(), rail) for _ in range(CONTROLS) if len(good) > 1]
                if not tests:
                    continue
                yield tests + controls
                usual = [value for value in (self._answers.get(test) for test in controls or tests) if value]
                centre = statistics.median(usual) if usual else None
                for test in tests:
                    if self._is_low(self._answers.get(test), centre, test.one):
                        low.setdefault(test.one, []).append(rail)
            todo = {node: rails for node, rails in low.items() if len(rails) < len(self.rails[node])}
        bad_rails.update(todo)

    def _paths(self) -> Iterator[list[Pair]]:
        """Slow pairs whose nodes both turned out good, with each other again."""
        open_ = [
            test for test in self._slow_pairs if not {test.one, test.other} & set(self._bad) and self._both_clean(test)
        ]
        for turn in range(VOTES):
            taken: set[str] = set()
            tests = []
            for test in open_:
                if not {test.one, test.other} & taken:
                    taken |= {test.one, test.other}
                    tests.append(test)
            if not tests:
                return
            yield tests
            open_ = [test for test in tests if self._is_slow(self._answers.get(test))]
            if turn == VOTES - 1:
                for test in open_:
                    value = self._answers.get(test)
                    ratio = value / self.usual if value is not None and self.usual else None
                    self.verdicts.append(Verdict("path", (test.one, test.other), (), ratio, value is None, 1 + VOTES))

    def _both_clean(self, test: Pair) -> bool:
        return all(self._state[node].clean >= self._clean_votes for node in (test.one, test.other))

    # --- conclusions ------------------------------------------------------------------------------------------------------------------------

    def _conclude(self, bad_rails: Mapping[str, Sequence[str]]) -> None:
        grouped = set(itertools.chain.from_iterable(self._groups))
        for members in self._groups:
            ratios = [ratio for node in members for ratio in self._state[node].ratios]
            self.verdicts.append(
                Verdict("group", tuple(members), (), statistics.median(ratios) if ratios else None, False, len(ratios))
            )
        for node in self._bad:
            if node not in grouped:
                rails = tuple(bad_rails.get(node, ()))
                some = 0 < len(rails) < len(self.rails.get(node, ()))
                self.verdicts.append(self._verdict("rail" if some else "node", node, rails if some else ()))
        self.verdicts += [self._verdict("unsure", node) for node in self._open]

    def _verdict(self, kind: str, node: str, rails: tuple[str, ...] = ()) -> Verdict:
        state = self._state[node]
        ratio = statistics.median(state.ratios) if state.ratios else None
        return Verdict(
            kind, (node,), rails, ratio, bool(state.stuck) and not state.ratios, len(state.ratios) + state.stuck
        )

    def _conclude_open(self) -> None:
        """The rounds are used up: what is known so far."""
        if self._bad or self._open:
            self._conclude({})
            return
        told = {node for verdict in self.verdicts for node in verdict.nodes}
        for node, state in self._state.items():
            if node not in told and state.slow:
                self.verdicts.append(self._verdict("node" if state.slow >= VOTES else "unsure", node))

    def _conclude_stuck(self) -> None:
        """A pair that got stuck is evidence that no later success takes back. Those that no verdict explains point to the node that they all
        have in common, if every other pair of it got stuck too; else the pairs are told."""
        ended: dict[frozenset[str], list[bool]] = {}
        for test, value in self.results:
            if not test.rail:
                ended.setdefault(frozenset((test.one, test.other)), []).append(value is not None)
        stuck = [
            pair
            for pair, found in ended.items()
            if not all(found) and not any(one.explains(pair) for one in self.verdicts)
        ]
        if not stuck:
            return
        clean = set(itertools.chain.from_iterable(pair for pair, found in ended.items() if all(found)))
        common = frozenset.intersection(*stuck) - clean
        if len(common) == 1:
            (node,) = common
            tests = sum(len(found) for pair, found in ended.items() if node in pair)
            self.verdicts = [one for one in self.verdicts if one.nodes != (node,)]
            self.verdicts.append(Verdict("node", (node,), (), None, True, tests))
        else:
            self.verdicts += [Verdict("stuck", tuple(sorted(pair)), (), None, True, len(ended[pair])) for pair in stuck]


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
