"""How many rounds of disjoint pairs name a fault among many nodes: simulated networks, the real schedule and inference.

    python benchmarks/reach.py [--nodes 1000] [--loss 0.001]

For each fault the first round after which it is named, exactly and without another, and stays so. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

from ncdiag.reach import schedule
from ncdiag.reach.infer import Trial, faults

Broken = Callable[[int, int], bool]


def kinds(count: int, source: random.Random) -> dict[str, tuple[str, set[int], Broken]]:
    """Name -> (kind of fault to be found, its nodes, which directed pairs fail)."""
    node, start = source.randrange(count), 16 * source.randrange(count // 16)
    rack, half = set(range(start, start + 16)), set(range(count // 2))
    one, other = source.sample(range(count), 2)
    return {
        "one node down": ("both", {node}, lambda a, b: node in (a, b)),
        "one node: nothing comes in": ("to", {node}, lambda a, b: b == node),
        "one node: nothing goes out": ("from", {node}, lambda a, b: a == node),
        "a rack of 16 cut off": ("border", rack, lambda a, b: (a in rack) != (b in rack)),
        "two halves cut apart": ("border", half, lambda a, b: (a in half) != (b in half)),
        "neighbours in the ring, one way": (
            "link",
            {node, (node + 1) % count},
            lambda a, b: (a, b) == (node, (node + 1) % count),
        ),
        "any one pair of nodes": ("link", {one, other}, lambda a, b: {a, b} == {one, other}),
    }


def named(trials: list[Trial], kind: str, nodes: set[int]) -> bool:
    """Whether the fault is told; single failures that are lost packets may stand beside it."""
    found = faults(trials)
    wide = [fault for fault in found if fault.kind != "link"]
    if kind == "link":
        return not wide and any({*fault.nodes, *fault.others} == nodes for fault in found)
    return len(wide) == 1 and wide[0].kind == kind and nodes in (set(wide[0].nodes), set(wide[0].others))


def first_round(
    count: int, limit: int, kind: str, nodes: set[int], broken: Broken, loss: float, source: random.Random
) -> tuple[int | None, float]:
    """The round, None when it is not found within the limit; CPU seconds of the last inference."""
    trials: list[Trial] = []
    first, took = None, 0.0
    for number, pairs in enumerate(schedule.rounds(count, limit), 1):
        for ends in pairs:
            for a, b in (ends, ends[::-1]):
                bad = broken(a, b) or source.random() < loss
                trials.append(Trial(a, b, "dropped" if bad else "ok"))
        started = time.process_time()
        good = named(trials, kind, nodes)
        took = time.process_time() - started
        first = (first or number) if good else None
    return first, took


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--loss", type=float, default=0.0, help="share of tests that fail for no reason")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{options.nodes} nodes, {options.rounds} rounds, {options.loss:.2%} of the tests fail for no reason, {options.seeds} runs\n"
    )
    print("| fault | found | median round | last round | CPU s of the inference |\n|---|---|---|---|---|")
    results: dict[str, list[tuple[int | None, float]]] = {}
    for seed in range(options.seeds):
        source = random.Random(seed)
        for name, (kind, nodes, broken) in kinds(options.nodes, source).items():
            results.setdefault(name, []).append(
                first_round(options.nodes, options.rounds, kind, nodes, broken, options.loss, source)
            )
    for name, told in results.items():
        rounds = sorted(number for number, _ in told if number is not None)
        middle, last = (rounds[len(rounds) // 2], rounds[-1]) if rounds else ("-", "-")
        print(f"| {name} | {len(rounds)} of {len(told)} | {middle} | {last} | {max(took for _, took in told):.2f} |")


if __name__ == "__main__":
    main()
