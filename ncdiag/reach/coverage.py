"""What a run has tested, and what it has not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set

from ncdiag.model import Finding, ok, unknown
from ncdiag.nodeset import counted, fold
from ncdiag.reach import rdma_judge, schedule
from ncdiag.reach.seen import Run, trials


def covered(run: Run, source: str, faulty: bool) -> Iterator[Finding]:
    """What was tested. With faults only where pairs were left out."""
    pairs = {frozenset((trial.source, trial.target)) for trial in trials(run, "tcp")}
    if not pairs:
        if len(run.reports) < 2:
            names = fold(run.names[number] for number in run.reports) or "no node"
            yield unknown(f"no pair of nodes was tested: {names} gave a report", source=source)
        elif not faulty:
            yield unknown("no pair of nodes was tested: no two agents were up at the same time", source=source,
                          remedy="give it more time with --budget, or see why the nodes are slow to answer")  # fmt: skip
        return
    rounds = 1 + max(test[0] for report in run.reports.values() for test in report["tests"])
    wanted = run.pairs if run.request["between"] is None else _between(run, set(range(len(run.members))))
    share = f"{len(pairs)} of {counted(wanted, 'pair')} in {counted(rounds, 'round')}"
    missed = "" if len(pairs) >= wanted else _missed(run, len(pairs))
    observed = {"pairs": len(pairs), "of": run.pairs, "rounds": rounds}
    if faulty:
        if missed:
            yield ok(f"pairs tested: {share}{missed}", source=source, observed=observed)
        return
    mtus = sorted({int(trial.detail) for trial in trials(run, "mtu") if trial.outcome == "ok"})
    path = f"; path MTU {' and '.join(map(str, mtus))}" if mtus else ""
    yield ok(
        f"{_who(run, pairs)} reach each other both ways on {', '.join(sorted({member.interface for member in run.members}))}: "
        f"{share}{_named(run)}{path}{rdma_judge.coverage(run)}{missed}",
        source=source,
        observed={**observed, "path_mtu": mtus},
    )


def _who(run: Run, pairs: Set[frozenset[int]]) -> str:
    """Those that were tested with each other: of two sets, no node of the one with another of the same."""
    tested = {number for pair in pairs for number in pair}
    if run.request["between"] is None or len(pairs) == len(tested) * (len(tested) - 1) // 2:
        return f"{len(tested)} nodes"
    first, second = ({*side} & tested for side in run.request["between"])
    if len(first) == 1 or len(second) == 1:
        first, second = (first, second - first) if len(first) == 1 else (first - second, second)
    return f"{fold(run.names[number] for number in first)} and {fold(run.names[number] for number in second)}"


def _missed(run: Run, tested: int) -> str:
    """Why not all pairs were tested, and what that can hide."""
    there = len(run.reports)
    able = there * (there - 1) // 2 if run.request["between"] is None else _between(run, set(run.reports))
    if tested >= able:
        return "; the others have a node that gave nothing"
    return "; a fault between one pair alone can be missed: --pairs all tests every pair, --between SET SET those of two sets"


def _between(run: Run, there: Set[int]) -> int:
    """Pairs of the two sets that were named, of the nodes that are `there`."""
    rounds = schedule.rounds(len(run.members), None, between=run.request["between"])
    return sum(low in there and high in there for pairs in rounds for low, high in pairs)


def _named(run: Run) -> str:
    """The ports that were tested by number, and those of Ray."""
    plain = [str(port) for port in run.request["named"] if port not in run.labels]
    services = sorted({name for member in run.members for name in member.services})
    told = [f"ports {', '.join(plain)}"] if plain else []
    told += [f"{port} ({label})" for port, label in run.labels.items()] + services
    return "".join(f", {one}" for one in told)
