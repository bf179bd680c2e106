"""The whole command: reach, refuse what is taken, sweep, expect, compare, isolate, and say what it means for an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ncdiag.bandwidth import baseline, blame, judge, occupancy, pairs, sweep
from ncdiag.bandwidth import room as room_of
from ncdiag.bandwidth.engine_share import Curve, Forward, Load, Machine, Shape, forwards
from ncdiag.bandwidth.expect import Expectation, expect, expect_gloo
from ncdiag.bandwidth.job import Outcome, Place
from ncdiag.bandwidth.limit import Limit
from ncdiag.bandwidth.reach import Way
from ncdiag.bandwidth.session import Session
from ncdiag.bandwidth.sweep import Effort, Row
from ncdiag.model import Finding
from ncdiag.nodeset import counted

PAIR_S, LEAST_PAIR_S = 60.0, 15.0
"""How long a pair may take where nobody says it; a quarter of what is left, where a person limits the whole, but not below the second."""
LARGEST, PAIR = {"nccl": 512 << 20, "gloo": 16 << 20}, {"nccl": 64 << 20, "gloo": 4 << 20}


class Taken(Exception):
    """The GPUs are in use; one sentence each."""


class Nobody(Exception):
    """There are too few ranks or too many; one sentence with the way out."""


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    ops: Sequence[str]
    sizes: tuple[int, int | None, int]
    """Least, most (None: by backend), factor."""
    dtype: str
    backend: str
    """`nccl`, `gloo`, or `auto`: NCCL where all nodes have GPUs."""
    effort: Effort
    per_node: int | None
    share: bool
    isolate: str
    """`auto`: when something is slow or stuck; `always`; `never`."""
    pair_size: int | None
    pair_limit_s: float | None
    """None: a minute, and less where `limit_s` is short."""
    limit_s: float | None
    """For everything together; None: each stage has only a limit of its own."""
    expect: float | None
    baseline: dict[str, Any] | None
    shape: Shape | None
    load: Load
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Report:
    nodes: list[str] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    backend: str = ""
    dtype: str = ""
    versions: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    expectation: Expectation = field(default_factory=Expectation)
    findings: list[Finding] = field(default_factory=list)
    changes: list[baseline.Change] = field(default_factory=list)
    isolation: pairs.Isolation | None = None
    engine: list[Forward] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    """Rank -> the end of its log, of ranks that failed."""
    self_tests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def about(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "ranks": len(self.ranks), "backend": self.backend, "dtype": self.dtype}


def measure(ways: Sequence[Way], wanted: Wanted, say: Callable[[str], None], limit: Limit | None = None) -> Report:
    """`limit`: where it began before this. Raises Taken, Nobody."""
    say(f"reaching {counted(len(ways), 'agent')}")
    with Session(ways, say, limit or Limit(wanted.limit_s)) as session:
        _may_hold(session, wanted.per_node)
        places = session.places(wanted.per_node)
        names = [place.on(session) for place in places]
        there = [agent for agent in session.agents if agent.alive]
        lost = list(judge.not_answering(session.agents, len(places) > 1))
        if lost and len(places) < 2:
            report = _about(session, places, wanted)
            report.findings += [*lost, judge.too_few(names)]
            return report
        _may_start(session, places, wanted)
        report = _about(session, places, wanted)
        report.findings += lost
        wanted = _may_hold_sizes(session, places, wanted, report.backend, say)
        outcome = _sweep(session, places, report, wanted, say)
        by_pairs = wanted.isolate != "never" and len(pairs.units(session, places)) > 1
        report.findings += judge.stuck(outcome, names, by_pairs, wanted.limit_s)
        facts = {agent.node: agent.facts or {} for agent in session.agents}
        report.expectation = expect(outcome, names, facts) if report.backend == "nccl" else expect_gloo(names, facts)
        report.findings += [
            *judge.data(report.rows, by_pairs),
            *judge.choices(report.expectation),
            *judge.against(report.rows, report.expectation, wanted.expect, report.backend, by_pairs),
        ]
        if wanted.baseline is not None:
            report.changes, doubts = baseline.compare(wanted.baseline, report.rows, report.about)
            report.findings += judge.changes(report.changes, doubts, by_pairs)
        _isolate(session, places, report, wanted, outcome, say)
        report.findings += judge.fell_silent(there, report.isolation)
        _engine(report, wanted, len(set(names)))
    return report


def _may_hold(session: Session, per_node: int | None) -> None:
    if per_node is None:
        return
    reasons = [occupancy.too_many(agent.node, agent.facts or {}, per_node) for agent in session.agents]
    if any(reasons):
        raise Nobody(f"--ranks-per-node {per_node}: {'; '.join(dict.fromkeys(filter(None, reasons)))}")


def _may_start(session: Session, places: Sequence[Place], wanted: Wanted) -> None:
    if len(places) < 2:
        raise Nobody(
            f"{places[0].on(session)} alone gives one rank, and bandwidth is measured between two; --ranks-per-node 2, or more nodes"
        )
    taken = [] if wanted.backend == "gloo" else occupancy.all_taken(session.agents)
    if taken and not wanted.share:
        raise Taken("\n".join(taken))


def _may_hold_sizes(
    session: Session, places: Sequence[Place], wanted: Wanted, backend: str, say: Callable[[str], None]
) -> Wanted:
    """With sizes that fit: smaller than usual where nobody has named one, and said so. Raises Nobody where one that was named does not fit."""
    least, most, factor = wanted.sizes
    usual = max(LARGEST[backend], least)
    room = room_of.tightest(places, session.agents, backend)
    if room is None:
        return replace(wanted, sizes=(least, most or usual, factor), pair_size=wanted.pair_size or PAIR[backend])

    def fitting(switch: str, given: int | None, usual: int, ops: Sequence[str]) -> int:
        fits = room_of.largest(ops, len(places), room, backend)
        if (given or least) > fits:
            named = (switch, given) if given else ("--min", least)
            raise Nobody(room_of.why(*named, ops, len(places), room, backend))
        if given is None and usual > fits:
            say(
                f"note: {room.where} has {room.free / room_of.GIB:.3g} GiB of memory free: as if {switch} {room_of.written(fits)}"
            )
        return given or min(usual, fits)

    largest = fitting("--max", most, usual, wanted.ops)
    pair = fitting("--pair-size", wanted.pair_size, PAIR[backend], ("all_reduce", "send_recv"))
    return replace(wanted, sizes=(least, largest, factor), pair_size=pair)


def _about(session: Session, places: Sequence[Place], wanted: Wanted) -> Report:
    facts = [session.agents[index].facts or {} for index in dict.fromkeys(place.agent for place in places)]
    gpus = bool(facts) and all(fact.get("cuda") for fact in facts)
    backend = wanted.backend if wanted.backend != "auto" else ("nccl" if gpus else "gloo")
    if backend == "nccl" and facts and not gpus:
        raise Nobody(
            "--backend nccl needs GPUs on every node, and torch sees none on some; --backend gloo measures the CPUs' network"
        )
    nodes = list(dict.fromkeys(agent.node for agent in session.agents))
    ranks = []
    for number, place in enumerate(places):
        cuda = (session.agents[place.agent].facts or {}).get("cuda") or []
        device = cuda[place.device]["name"] if place.device < len(cuda) else "CPU"
        ranks.append(
            {
                "rank": number,
                "node": place.on(session),
                "device": place.device,
                "name": device if backend == "nccl" else "CPU",
            }
        )
    versions = {key: sorted({str(fact.get(key)) for fact in facts if fact.get(key)}) for key in ("torch", "nccl")}
    return Report(nodes, ranks, backend, wanted.dtype, versions)


def _sweep(
    session: Session, places: Sequence[Place], report: Report, wanted: Wanted, say: Callable[[str], None]
) -> Outcome:
    least, most, factor = wanted.sizes
    assert most is not None, "_may_hold_sizes"
    sizes = sweep.sizes(least, most, factor)
    job = sweep.job(
        places,
        report.backend,
        wanted.ops,
        sizes,
        wanted.dtype,
        wanted.effort,
        dict(wanted.env),
        wanted.limit_s,
        "all" if wanted.shape else "",
    )
    outcome = session.run([job])[0]
    report.rows = sweep.rows(outcome)
    report.self_tests = [rank.self_test for rank in outcome.ranks if rank.self_test]
    for number, rank in enumerate(outcome.ranks):
        if rank.counters is None:
            report.logs[str(number)] = rank.log[-4000:].decode("utf-8", "replace")
    return outcome


def _isolate(
    session: Session,
    places: Sequence[Place],
    report: Report,
    wanted: Wanted,
    outcome: Outcome,
    say: Callable[[str], None],
) -> None:
    bad = any(finding.status.value in ("warn", "fail") for finding in report.findings)
    if wanted.isolate == "never" or (wanted.isolate == "auto" and not bad):
        return
    alive = [place for place in places if session.agents[place.agent].alive]
    chosen = pairs.units(session, alive)
    if len(chosen) < 2:
        return
    assert wanted.pair_size is not None, "_may_hold_sizes"
    effort = replace(
        wanted.effort, budget_s=min(wanted.effort.budget_s, 1.0), precision=max(wanted.effort.precision, 0.02)
    )
    limit_s = wanted.pair_limit_s or max(min(PAIR_S, session.limit.left(4 * PAIR_S) / 4), LEAST_PAIR_S)
    how = pairs.Pairwise(report.backend, wanted.pair_size, wanted.dtype, effort, limit_s, dict(wanted.env))
    report.isolation = pairs.isolate(session, chosen, how, say)
    report.findings += blame.isolated(report.isolation)


def _engine(report: Report, wanted: Wanted, nodes: int) -> None:
    if wanted.shape is None or not report.rows:
        return
    reduce, send = Curve(report.rows, "all_reduce"), Curve(report.rows, "send_recv")
    if not reduce:
        return
    tests = report.self_tests
    memory = [test["memory_gbytes_s"] for test in tests if "memory_gbytes_s" in test]
    flops = [test["bf16_tflops"] for test in tests if "bf16_tflops" in test]
    machine = Machine(min(memory) if memory else None, min(flops) if flops else None)
    report.engine = forwards(wanted.shape, wanted.load, reduce, send or reduce, len(report.ranks), nodes, machine)
