"""What the search knows: the nodes, every measured pair, what is usual, and how each node stands."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

FEW = 8
"""Up to so many nodes, all pairs are tested."""
VOTES = 2
"""Tests with known-good partners that must agree."""
LEAST_DROP = 0.10
"""What is slower than the others by less than this is never slow."""


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
class Standing:
    """How one node stands."""

    healthy: bool = False
    """One of those that say what is usual, where it is noisy."""
    screen_slow: int = 0
    clean: int = 0
    """Votes with known-good partners, or in the screening."""
    slow: int = 0
    ratios: list[float] = field(default_factory=list)
    stuck: int = 0
    partners: set[str] = field(default_factory=set)


class Board:
    """`slow_below`: the share of what is usual below which a pair is slow, until the values themselves have said it."""

    def __init__(
        self, nodes: Sequence[str], rails: Mapping[str, Sequence[str]], seed: int, slow_below: float, limit: int
    ) -> None:
        self.nodes = list(dict.fromkeys(nodes))
        self.rails = {node: tuple(names) for node, names in rails.items()}
        self.random = random.Random(seed)
        self.rounds = 0
        self.limit = limit
        self.few = len(self.nodes) <= FEW
        self.clean_votes = 1 if self.few else VOTES  # few nodes: noise only ever slows, so the best test counts
        self.results: list[tuple[Pair, float | None]] = []
        self.alike: list[tuple[Pair, float | None]] = []
        """Those of rounds in which everybody was tested with somebody: no node has more tests with doubtful ones than others."""
        self.answers: dict[Pair, float | None] = {}
        """Those of the last round."""
        self.standing = {node: Standing() for node in self.nodes}
        self.usual: float | None = None
        self.threshold = slow_below
        self.population: list[float] = []
        """Values of healthy pairs over the usual one, sorted."""
        self.slow_pairs: list[Pair] = []
        self.bad: list[str] = []
        self.open: list[str] = []
        """Suspects that are neither bad nor cleared."""
        self.groups: list[list[str]] = []
        """Nodes that are fast among themselves and slow towards the others."""
        self.bad_rails: dict[str, list[str]] = {}
        self.verdicts: list[Verdict] = []

    def take(self, answers: Mapping[Pair, float | None]) -> None:
        self.answers = dict(answers)
        self.results += list(answers.items())

    def is_slow(self, value: float | None) -> bool:
        return value is None or (self.usual is not None and value < self.threshold * self.usual)

    def ratios(self, without: Collection[str]) -> dict[str, list[float]]:
        """Node -> measured over usual of its tests with partners that are not among `without`; 0: stuck."""
        found: dict[str, list[float]] = {node: [] for node in self.nodes}
        for test, value in self.results:
            for node in () if test.rail else (test.one, test.other):
                if test.partner(node) not in without:
                    found[node].append((value or 0.0) / (self.usual or 1.0))
        return found

    def companies(self, nodes: Sequence[str], fast: Collection[Pair]) -> list[tuple[str, ...]]:
        """The nodes, those together that are joined by `fast` pairs; the largest company first."""
        together = {node: {node} for node in nodes}
        for test in fast:
            joined = together[test.one] | together[test.other]
            for node in joined:
                together[node] = joined
        return sorted({tuple(sorted(members)) for members in together.values()}, key=len, reverse=True)

    def good(self) -> list[str]:
        """Nodes with nothing against them, those with the most tests first."""
        free = [node for node in self.nodes if not self.standing[node].slow]
        good = [node for node in free if not self.standing[node].screen_slow]
        return good + [
            node for node in free if self.standing[node].screen_slow and self.standing[node].clean >= self.clean_votes
        ]

    def settle(self) -> None:
        """Who is bad, and who is neither bad nor cleared."""
        suspects = [(node, standing) for node, standing in self.standing.items() if standing.screen_slow]
        self.bad = [node for node, standing in suspects if standing.slow >= VOTES]
        self.open = [node for node, standing in suspects if standing.slow < VOTES and standing.clean < self.clean_votes]

    def alive(self) -> list[str]:
        """Bad nodes that did not always get stuck."""
        return [node for node, standing in self.standing.items() if standing.slow >= VOTES and standing.ratios]

    def matching(self, nodes: Sequence[str], again: bool = True) -> list[Pair]:
        """Random disjoint pairs that have not met, as far as can be; who finds nobody rests, and with `again` meets somebody once more."""
        order = list(nodes)
        self.random.shuffle(order)
        tests = []
        while len(order) > 1:
            one = order.pop()
            met = self.standing[one].partners
            index = next((i for i, other in enumerate(order) if other not in met), 0 if again else None)
            if index is not None:
                other = order.pop(index)
                self.meet(one, other)
                tests.append(Pair(one, other))
        return tests

    def with_one_of(self, node: str, good: list[str]) -> Pair:
        """`node` with one of `good` that it has not met, where there is one; it is taken from them."""
        met = self.standing[node].partners
        partner = good.pop(next((i for i, other in enumerate(good) if other not in met), len(good) - 1))
        self.meet(node, partner)
        return Pair(node, partner)

    def meet(self, one: str, other: str) -> None:
        self.standing[one].partners.add(other)
        self.standing[other].partners.add(one)
