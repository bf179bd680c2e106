"""Carries out the isolation's rounds on real nodes, and asks those it found what is the matter with them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.bandwidth import sweep
from ncdiag.bandwidth.isolation.board import Pair, Verdict
from ncdiag.bandwidth.isolation.search import Search
from ncdiag.bandwidth.job import Outcome, Place
from ncdiag.bandwidth.session import Session
from ncdiag.bandwidth.symptoms import LOSS, SLOW_CPU, SLOW_CPU_STOPPED, Symptoms, idle_loss, symptoms
from ncdiag.nodeset import counted

IDLE_BYTES = 4096
"""A message that fills no queue: what is lost of it is lost without load."""
SLOW_BELOW = {"nccl": 0.85, "gloo": 0.5}
"""CPU ranks share their cores with whatever else runs: their noise is far greater."""
Units = Mapping[str, Sequence[Place]]


@dataclass
class Isolation:
    verdicts: list[Verdict] = field(default_factory=list)
    symptoms: dict[str, Symptoms] = field(default_factory=dict)
    """Of every node named in a verdict."""
    lossy: dict[str, float] = field(default_factory=dict)
    """Nodes whose own packets were lost without load, whatever their bandwidth is: node -> share."""
    slow_cpu: dict[str, float] = field(default_factory=dict)
    """Nodes that take much longer than the others for the same CPU work: node -> how many times."""
    rounds: int = 0
    limit: int = 0
    unfinished: str = ""
    """Why it was ended before its end, in words."""
    usual_gbytes_s: float | None = None
    threshold: float = 0.0
    tests: list[dict[str, Any]] = field(default_factory=list)
    """Every pair: `round`, `nodes`, `rail`, `busbw_gbytes_s` or None, `stage` where it got stuck, `passed_bytes`: the largest message
    that all its ranks came through (None: none), `retransmitted`."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdicts": [{**vars(one), "nodes": list(one.nodes), "rails": list(one.rails)} for one in self.verdicts],
            "symptoms": {node: found.as_dict() for node, found in self.symptoms.items()},
            "lossy": self.lossy,
            "slow_cpu": self.slow_cpu,
            "rounds": self.rounds,
            "most_rounds": self.limit,
            "unfinished": self.unfinished,
            "usual_busbw_gbytes_s": self.usual_gbytes_s,
            "slow_below": self.threshold,
            "tests": self.tests,
        }


@dataclass(frozen=True)
class Pairwise:
    """How a pair is measured."""

    backend: str
    size: int
    dtype: str
    effort: sweep.Effort
    limit_s: float
    env: dict[str, str | None] = field(default_factory=dict)


def units(session: Session, places: Sequence[Place]) -> dict[str, list[Place]]:
    """What can be good or bad: nodes, or the GPUs of a single node."""
    by_node: dict[str, list[Place]] = {}
    for place in places:
        by_node.setdefault(place.on(session), []).append(place)
    if len(by_node) > 1:
        return by_node
    return {f"{node}:{place.device}": [place] for node, found in by_node.items() for place in found}


def isolate(session: Session, chosen: Units, how: Pairwise, say: Callable[[str], None]) -> Isolation:
    """Runs the search to its end. A pair that gets stuck is ended after `how.limit_s`."""
    rails = {name: _rails(session, places) for name, places in chosen.items()} if how.backend == "nccl" else {}
    search = Search(list(chosen), rails, slow_below=SLOW_BELOW[how.backend])
    result = Isolation(limit=search.limit)
    while tests := search.next_round():
        if late := session.limit.short_of(how.limit_s):
            result.unfinished = f"the pairs were ended before round {search.rounds}: {late}"
            search.stop()
            break
        say(f"round {search.rounds}: {counted(len(tests), 'pair')}")
        alive = [test for test in tests if _alive(session, chosen, test)]
        outcomes = session.run([_job(chosen, test, how, ("all_reduce",)) for test in alive])
        answers: dict[Pair, float | None] = dict.fromkeys(tests)
        for test, outcome in zip(alive, outcomes, strict=True):
            answers[test] = _busbw(outcome)
            result.tests.append(_record(search.rounds, test, outcome, answers[test]))
        search.take(answers)
    result.verdicts, result.rounds = search.verdicts, search.rounds
    result.usual_gbytes_s, result.threshold = search.usual, search.threshold
    result.lossy, result.slow_cpu = _lossy(result), _slow_cpu(result)
    _examine(session, chosen, how, result, say)
    return result


def _lossy(result: Isolation) -> dict[str, float]:
    """Nodes that lost idle packets with two partners or more, one rank a node: node -> median share."""
    losses: dict[str, list[float]] = {}
    for test in result.tests:
        if len(test["idle_loss"]) == 2:
            for node, loss in zip(test["nodes"], test["idle_loss"], strict=True):
                if loss is not None:
                    losses.setdefault(node, []).append(loss)
    return {
        node: statistics.median(found)
        for node, found in losses.items()
        if sum(loss >= LOSS for loss in found) >= 2 and statistics.median(found) >= LOSS
    }


def _slow_cpu(result: Isolation) -> dict[str, float]:
    taken: dict[str, list[float]] = {}
    stopped: dict[str, int] = {}
    for test in result.tests:
        per_node = len(test["cpu_work_s"]) // 2
        for number, seconds in enumerate(test["cpu_work_s"]):
            node = test["nodes"][number >= per_node]
            stopped[node] = stopped.get(node, 0) + test["throttled"][number]
            if seconds is not None:
                taken.setdefault(node, []).append(seconds)
    own = {node: statistics.median(found) for node, found in taken.items() if len(found) >= 2}
    if len(own) < 3:
        return {}
    usual = statistics.median_low(own.values())
    return {
        node: seconds / usual
        for node, seconds in own.items()
        if seconds >= (SLOW_CPU_STOPPED if stopped[node] >= 2 else SLOW_CPU) * usual
    }


def _rails(session: Session, places: Sequence[Place]) -> tuple[str, ...]:
    facts = session.agents[places[0].agent].facts or {}
    return tuple(facts.get("hcas") or ())


def _alive(session: Session, chosen: Units, test: Pair) -> bool:
    return all(session.agents[place.agent].alive for name in (test.one, test.other) for place in chosen[name])


def _job(chosen: Units, test: Pair, how: Pairwise, ops: Sequence[str], itself: str = "cpu") -> Any:
    count = min(len(chosen[test.one]), len(chosen[test.other]))
    places = [*chosen[test.one][:count], *chosen[test.other][:count]]
    env = {**how.env, **({"NCCL_IB_HCA": f"={test.rail}"} if test.rail else {})}
    wanted = [IDLE_BYTES, how.size]
    limit = how.limit_s * (2 if itself == "all" else 1)
    return sweep.job(places, how.backend, ops, wanted, how.dtype, how.effort, env, limit, itself)


def _busbw(outcome: Outcome) -> float | None:
    best = sweep.peak(sweep.rows(outcome))
    return (
        best.busbw * best.time_s / best.median_s if outcome.ok and best else None
    )  # the median: what a passing load does little to


def _record(number: int, test: Pair, outcome: Outcome, value: float | None) -> dict[str, Any]:
    rows = sweep.rows(outcome)
    return {
        "round": number,
        "nodes": [test.one, test.other],
        "rail": test.rail,
        "busbw_gbytes_s": value,
        "stage": None if value is not None else next((rank.stage for rank in outcome.ranks), ""),
        "passed_bytes": max((row.size_bytes for row in rows), default=None),
        "error": next((rank.error for rank in outcome.ranks if rank.error), None),
        "idle_loss": [idle_loss([rank], IDLE_BYTES) for rank in outcome.ranks],
        "cpu_work_s": [rank.self_test["cpu_work_s"] if rank.self_test else None for rank in outcome.ranks],
        "throttled": [bool(rank.self_test and rank.self_test.get("throttled")) for rank in outcome.ranks],
        "retransmitted": sum(row.retransmitted for row in rows),
    }


def _examine(session: Session, chosen: Units, how: Pairwise, result: Isolation, say: Callable[[str], None]) -> None:
    """Each bad node with a good partner, one after another: both directions, idle messages, and its own CPU and GPU."""
    named = [*(node for verdict in result.verdicts for node in verdict.nodes), *result.lossy, *result.slow_cpu]
    good = [node for node in chosen if node not in named]
    for number, node in enumerate(dict.fromkeys(named)):
        if late := session.limit.short_of(how.limit_s):
            result.unfinished = result.unfinished or f"{node} was not looked at by itself: {late}"
            return
        partners = good or [other for other in chosen if other != node]
        if not partners or not _alive(session, chosen, Pair(node, partners[0])):
            result.symptoms[node] = Symptoms(stuck=True)
            continue
        say(f"looking at {node}")
        test = Pair(node, partners[number % len(partners)])
        outcome = session.run([_job(chosen, test, how, ("all_reduce", "forward", "backward"), itself="all")])[0]
        result.symptoms[node] = symptoms(outcome, IDLE_BYTES)
