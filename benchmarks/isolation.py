"""How well the pair isolation finds bad nodes, NICs and uplinks on simulated clusters.

    python benchmarks/isolation.py [--nodes 1000] [--runs 200] [--noise benchmarks/isolation-noise.json] [--markdown]

A node has eight NICs; a pair's bandwidth is that of the worse side, times noise drawn from real runs (values of healthy pairs over their
median, measured one after another). One to five things are bad: a node as a whole (at 15 to 70 % of its speed), one NIC of a node (the stripe over
all NICs waits for it: the pair falls to what that NIC's share allows), a node that gets stuck with everybody, or the uplink of a leaf switch
with 8 nodes (30 to 70 % towards the rest, full speed within; where there are more than 16). Truth and verdict are compared node by node, and what
kind was said. The truth of a run does not depend on how many pairs the search measures.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from ncdiag.bandwidth.isolation.board import Pair
from ncdiag.bandwidth.isolation.search import Search, most_rounds

RAILS = tuple(f"mlx5_{number}" for number in range(8))
LEAF = 8
NOISE = Path(__file__).with_name("isolation-noise.json")


@dataclass
class Cluster:
    """The truth."""

    nodes: list[str]
    noise: Callable[[], float]
    whole: dict[str, float] = field(default_factory=dict)
    rail: dict[str, tuple[str, float]] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    leaf: dict[int, float] = field(default_factory=dict)

    def of_leaf(self, number: int) -> list[str]:
        return self.nodes[number * LEAF : (number + 1) * LEAF]

    def bad(self) -> set[str]:
        return {*self.whole, *self.rail, *self.stuck, *(node for number in self.leaf for node in self.of_leaf(number))}

    def kind(self, node: str) -> str:
        if node in self.rail:
            return "rail"
        return "node" if node in self.whole or node in self.stuck else "group"

    def pair(self, test: Pair) -> float | None:
        if {test.one, test.other} & self.stuck:
            return None
        value = 1.0
        for node in (test.one, test.other):
            value = min(value, self.whole.get(node, 1.0))
            if node in self.rail and test.rail in (None, self.rail[node][0]):
                value = min(value, self.rail[node][1])
        leaves = [self.nodes.index(node) // LEAF for node in (test.one, test.other)]
        if leaves[0] != leaves[1]:
            value = min(value, *(self.leaf.get(leaf, 1.0) for leaf in leaves))
        return 97.0 / (8 if test.rail else 1) * value * self.noise()


def make(nodes: int, chance: random.Random, noise: Callable[[], float]) -> Cluster:
    cluster = Cluster([f"gpu{number:04d}" for number in range(nodes)], noise)
    free = list(range(nodes // LEAF))
    chance.shuffle(free)
    for _ in range(chance.randint(1, 5)):
        if not free:
            break
        leaf = free.pop()
        node = cluster.of_leaf(leaf)[chance.randrange(LEAF)]
        kind = chance.choice(("whole", "whole", "rail", "rail", "stuck", *(["leaf"] if nodes > 2 * LEAF else [])))
        if kind == "whole":
            cluster.whole[node] = chance.uniform(0.15, 0.7)
        elif kind == "rail":
            cluster.rail[node] = (chance.choice(RAILS), chance.uniform(0.1, 0.7))
        elif kind == "stuck":
            cluster.stuck.add(node)
        else:
            cluster.leaf[leaf] = chance.uniform(0.3, 0.7)
    return cluster


@dataclass
class Score:
    found: int = 0
    right: int = 0
    truth: int = 0
    kinds: int = 0
    rounds: list[int] = field(default_factory=list)
    tests: list[int] = field(default_factory=list)

    def add(self, cluster: Cluster, search: Search) -> None:
        said = {node: verdict for verdict in search.verdicts if verdict.kind != "unsure" for node in verdict.nodes}
        bad = cluster.bad()
        self.found += len(said)
        self.right += len(bad & said.keys())
        self.truth += len(bad)
        for node in bad & said.keys():
            rails = (cluster.rail[node][0],) if node in cluster.rail else ()
            self.kinds += said[node].kind == cluster.kind(node) and said[node].rails == rails
        self.rounds.append(search.rounds)
        self.tests.append(len(search.results))


def run(nodes: int, runs: int, values: Sequence[float], seed: int) -> Score:
    score = Score()
    for number in range(runs):
        truth, noise = random.Random(f"truth {seed} {number}"), random.Random(f"noise {seed} {number}")
        cluster = make(nodes, truth, functools.partial(noise.choice, values))
        search = Search(cluster.nodes, {node: RAILS for node in cluster.nodes}, seed=number)
        while tests := search.next_round():
            search.take({test: cluster.pair(test) for test in tests})
        score.add(cluster, search)
    return score


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--noise", type=Path, default=NOISE)
    options = parser.parse_args()
    sources = json.loads(options.noise.read_text())
    print(
        "| noise | nodes | runs | bad nodes | precision | recall | kind and NIC right | rounds median / most / bound | pair tests, median |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, values in sources.items():
        for nodes in options.nodes:
            score = run(nodes, options.runs, values, options.seed)
            rounds = f"{statistics.median(score.rounds):.0f} / {max(score.rounds)} / {most_rounds(nodes)}"
            print(
                f"| {name} | {nodes} | {options.runs} | {score.truth} | {score.right / max(score.found, 1):.2%} | {score.right / score.truth:.2%} "
                f"| {score.kinds / max(score.right, 1):.2%} | {rounds} | {statistics.median(score.tests):.0f} |"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
