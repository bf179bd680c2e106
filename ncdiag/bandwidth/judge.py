"""From what was measured to findings: wrong data, slower than the hardware allows, slower than before, and who is to blame."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncdiag.bandwidth import stuck_pairs
from ncdiag.bandwidth.baseline import Change
from ncdiag.bandwidth.expect import SLOW, VERY_SLOW, Expectation
from ncdiag.bandwidth.isolation.board import Verdict
from ncdiag.bandwidth.job import Outcome
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.rising import large, rising
from ncdiag.bandwidth.room import written
from ncdiag.bandwidth.session import Agent
from ncdiag.bandwidth.sweep import Row
from ncdiag.bandwidth.symptoms import Symptoms
from ncdiag.model import Finding, fail, ok, skip, unknown, warn
from ncdiag.nodeset import counted, fold

TIME_IS_UP = re.compile(r"timed? ?out", re.I)
"""Gloo: `Timed out waiting 12000ms for recv operation`; torch's store: `Timed out after 13 seconds waiting for clients`, `Socket Timeout`."""
LINK = "network-link-degraded"
SOURCE = "ncdiag bandwidth"
FEWEST_PAIRS, MANY_PAIRS = 6, 1 / 3
"""From so many pairs on, and such a share of them without an explanation, it is nobody in particular."""
WHO, WHO_BY_PAIRS = (
    "See who is slow with --isolate always.",
    "The pairs, tested one by one after this, say who is slow.",
)
"""Remedies; the second where the pairs are tested in the same run."""


def not_answering(agents: Sequence[Agent], goes_on: bool) -> Iterator[Finding]:
    """`goes_on`: whether enough ranks are left without them."""
    for agent in agents:
        if agent.error:
            yield unknown(
                f"{agent.node} does not take part: {agent.error}",
                agent.node,
                source=SOURCE,
                remedy=f"Look at {agent.node} by itself first" + ("; the run goes on without it." if goes_on else "."),
            )


def fell_silent(agents: Sequence[Agent], isolation: Isolation | None) -> Iterator[Finding]:
    """Agents that were there at first, where the pairs have not found their node."""
    named = {node for verdict in (isolation.verdicts if isolation else ()) for node in verdict.nodes}
    for agent in agents:
        if agent.error and agent.node not in named:
            yield unknown(
                f"{agent.node} fell silent during the run: {agent.error}",
                agent.node,
                source=SOURCE,
                remedy=f"Look at {agent.node} by itself: is it up, and does it answer?",
            )


def too_few(names: Sequence[str]) -> Finding:
    """Nothing was measured since others did not answer. `names`: the node of each rank that would have run, one at most."""
    left = f"{names[0]} alone gives one rank" if names else "no node answers"
    return unknown(
        f"nothing was measured: {left}, and bandwidth is measured between two",
        source=SOURCE,
        remedy="See why the others do not answer; --ranks-per-node 2 measures within one node.",
    )


def data(rows: Sequence[Row], by_pairs: bool = False) -> Iterator[Finding]:
    for row in rows:
        if row.wrong:
            yield fail(
                f"{row.op} of {row.size_bytes} bytes gave {counted(row.wrong, 'wrong element')} over {counted(row.ranks, 'rank')}",
                source=SOURCE,
                observed=row.wrong,
                expected=0,
                cause="gpu-hardware-fault",
                remedy="Do not serve from these GPUs; look at ECC and Xid"
                + ("." if by_pairs else ", and run the pairs one by one (--isolate always)."),
            )
    checked = [row for row in rows if row.wrong is not None]
    if checked and not any(row.wrong for row in checked):
        text = "the result" if len(checked) == 1 else f"all {len(checked)} results"
        yield ok(f"{text} on random data {'is' if len(checked) == 1 else 'are'} right", source=SOURCE)


def against(
    rows: Sequence[Row], expectation: Expectation, given: float | None, backend: str, by_pairs: bool = False
) -> Iterator[Finding]:
    """`given`: what the person expects, GB/s. `by_pairs`: if this is bad, the pairs are tested in the same run."""
    measured = [row for row in rows if row.op == "all_reduce"] or rows
    if not measured:
        return
    wanted = given or expectation.busbw_gbytes_s
    if wanted is None:
        text = f"no expectation: {expectation.why or 'nothing is known of the links'}; --expect GB/s gives one"
        yield unknown(text, source=SOURCE) if backend == "nccl" else skip(text, source=SOURCE)
        return
    best = max(large(measured), key=lambda row: row.busbw, default=None)
    if best is None:
        most = written(max(row.size_bytes for row in measured))
        yield unknown(
            f"the largest size, {most}, measures latency rather than bandwidth",
            source=SOURCE,
            remedy="Measure larger sizes: --max 256M.",
        )
        return
    where = f" on {expectation.bound}" if expectation.bound and not given else ""
    remark = f": {'; '.join(expectation.remarks)}" if expectation.remarks else ""
    ratio = best.busbw / wanted
    text = f"{best.busbw:.4g} GB/s of about {wanted:.4g} expected{where}"
    if ratio >= (SLOW if given else expectation.slow_below):
        yield ok(text + (remark if remark else ""), source=SOURCE, observed=best.busbw)
        return
    ahead = None if expectation.causes else rising(best, measured)
    if ahead is not None and ahead.peak_gbytes_s / wanted >= (SLOW if given else expectation.slow_below):
        yield unknown(
            f"{text} were measured at {written(best.size_bytes)}, the largest size, and it still rises "
            f"({ahead.before.busbw:.4g} GB/s at {written(ahead.before.size_bytes)}): the peak is not reached",
            source=SOURCE,
            observed=best.busbw,
            expected=wanted,
            remedy=f"Measure larger sizes: --max {written(ahead.larger)}.",
        )
        return
    cause, node, _ = expectation.causes[0] if expectation.causes else ("slow-not-hung", "", "")
    status = fail if ratio < VERY_SLOW else warn
    yield status(
        text + remark,
        node or None,
        source=SOURCE,
        observed=best.busbw,
        expected=wanted,
        cause=cause,
        remedy=(WHO_BY_PAIRS if by_pairs else WHO)
        if not expectation.causes
        else "Repair what the remark says, then measure again.",
    )


def choices(expectation: Expectation) -> Iterator[Finding]:
    """What NCCL chose that costs speed, whatever the figure is."""
    for cause, node, text in expectation.causes:
        yield warn(
            text,
            node or None,
            source="NCCL's log of this run",
            cause=cause,
            remedy="ncdiag preflight says why; see the playbook.",
        )


def changes(found: Sequence[Change], doubts: Sequence[str], by_pairs: bool = False) -> Iterator[Finding]:
    """One finding for each operation that is slower now, with its worst size. `found`: all that is in both runs."""
    for doubt in doubts:
        yield unknown(f"the baseline is of another kind of run: {doubt}", source=SOURCE)
    if not found:
        yield unknown(
            "nothing in the baseline matches: no operation and size of it was measured now",
            source=SOURCE,
            remedy="Measure with the --op, --min, --max and --factor of the baseline.",
        )
    for op in dict.fromkeys(change.op for change in found):
        alike = [change for change in found if change.op == op]
        slower = [change for change in alike if change.significant and change.ratio < 1]
        if not slower:
            continue
        worst = min(slower, key=lambda change: change.ratio)
        others = f"; slower in {len(slower)} of {len(alike)} measurements" if len(alike) > 1 else ""
        status = fail if worst.ratio < VERY_SLOW else warn
        yield status(
            f"{op} of {worst.size_bytes} bytes: {worst.now_gbytes_s:.4g} GB/s, {worst.before_gbytes_s:.4g} in the baseline ({worst.ratio - 1:+.0%}){others}",
            source=SOURCE,
            observed=worst.now_gbytes_s,
            expected=worst.before_gbytes_s,
            cause="slow-not-hung",
            remedy=WHO_BY_PAIRS if by_pairs else WHO,
        )


def unfinished(outcome: Outcome, stages: Sequence[str], given_s: float | None) -> Finding:
    """A run that got further until its time was up: slow is not stuck, and of a time that a person has set not even slow."""
    at = f"at {', '.join(stages)}, {outcome.quiet_s:.0f} s after a rank last got further"
    if given_s is not None:
        return unknown(
            f"the time of --timeout {given_s:g} was up before the run of all {len(outcome.ranks)} ranks was at its end: {at}",
            source=SOURCE,
            remedy="Give it more time, or fewer sizes and operations (--min, --max, --factor, --op).",
        )
    return warn(
        f"the run of all {len(outcome.ranks)} ranks is slow, not stuck: it was ended after {outcome.took_s:.0f} s {at}",
        source=SOURCE,
        cause="slow-not-hung",
        remedy="Measure fewer sizes and operations (--min, --max, --factor, --op), or give it time: --timeout.",
    )


def stuck(
    outcome: Outcome, names: Sequence[str], by_pairs: bool = False, given_s: float | None = None
) -> Iterator[Finding]:
    """A run of all ranks that did not come to its end; `given_s`: the time that a person gave to everything. A rank whose wait ended with its time, and what broke after that, is no more to blame
    than those that it waited for."""
    if outcome.ok:
        return
    failed = next((number for number, rank in enumerate(outcome.ranks) if rank.error), None)
    if failed is not None and not any(TIME_IS_UP.search(rank.error) for rank in outcome.ranks):
        rank = outcome.ranks[failed]
        yield fail(
            f"rank {failed} on {names[failed]} failed while {rank.stage}: {rank.error[:400]}",
            names[failed],
            source=SOURCE,
            rank=failed,
            cause="unresolved",
            remedy=("The pairs, tested after this," if by_pairs else "With --isolate auto the pairs")
            + " tell which nodes work together; what the rank printed last stands at the end.",
        )
        return
    waiting = [number for number, rank in enumerate(outcome.ranks) if rank.counters is None]
    stages = sorted({outcome.ranks[number].stage for number in waiting})
    if outcome.moving:
        yield unfinished(outcome, stages, given_s)
        return
    yield fail(
        f"the run of all {len(outcome.ranks)} ranks got stuck ({', '.join(stages)}) and was ended after {outcome.took_s:.0f} s, "
        f"{outcome.quiet_s:.0f} s after a rank last got further",
        source=SOURCE,
        cause="unresolved",
        remedy="The pairs, tested one by one after this, say more."
        if by_pairs
        else "--isolate auto tests the pairs one by one.",
    )


def isolated(isolation: Isolation) -> Iterator[Finding]:
    if isolation.unfinished:
        yield unknown(
            isolation.unfinished, source=SOURCE, remedy="Give --timeout more, or pairs less (--pair-timeout)."
        )
    yield from _unsure([verdict for verdict in isolation.verdicts if verdict.kind == "unsure"])
    yield from _unexplained(isolation)
    for verdict in isolation.verdicts:
        node = verdict.nodes[0]
        if verdict.kind == "unsure":
            continue
        if (
            verdict.kind == "node"
            and node in isolation.slow_cpu
            and isolation.symptoms.get(node, Symptoms()).kind not in ("dead", "cpu")
        ):
            isolation.symptoms[node] = replace(
                isolation.symptoms.get(node, Symptoms()), cpu_ratio=isolation.slow_cpu[node], cpu_slow=True
            )
        yield _stuck(verdict, isolation) or _verdict(verdict, isolation.symptoms)
    named = {node for verdict in isolation.verdicts for node in verdict.nodes}
    for node, times in isolation.slow_cpu.items():
        if node not in named:
            text = f"{node} takes {times:.1f} times as long as the others for the same CPU work; its bandwidth holds, in bursts"
            yield warn(
                text,
                node,
                source=SOURCE,
                observed=times,
                cause="cpu-starved",
                remedy="Look at CPU quota, frequency and who else computes there.",
            )
    for node, share in isolation.lossy.items():
        if node not in named:
            text = f"{node} loses {share:.1%} of the packets it sends even when hardly anything is sent; its bandwidth is as usual"
            yield warn(
                text,
                node,
                source=SOURCE,
                observed=share,
                cause=LINK,
                remedy="Look at cable, optics, port errors and filters on the way.",
            )


def _unsure(verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    """Suspects of which the rounds did not say enough, in one finding: their names tell what they may have in common."""
    if not verdicts:
        return
    names = [verdict.nodes[0] for verdict in verdicts]
    ratios = [verdict.ratio for verdict in verdicts if verdict.ratio is not None]
    share = f" ({statistics.median(ratios):.0%} of the usual bandwidth, median of their tests)" if ratios else ""
    many = len(names) > 1
    yield unknown(
        f"{fold(names)} {'are' if many else 'is'} perhaps slow{share}: the tests contradict each other, or were too few for their noise",
        None if many else names[0],
        source=SOURCE,
        observed=names,
        remedy="Run it again on these and a few that are good, with a larger --pair-size and longer --seconds.",
    )


def _unexplained(isolation: Isolation) -> Iterator[Finding]:
    """Slow or stuck pairs that no verdict is about, where they are too many for single nodes."""
    tests = [test for test in isolation.tests if not test["rail"]]
    limit = isolation.threshold * (isolation.usual_gbytes_s or 0.0)
    slow = [test for test in tests if test["busbw_gbytes_s"] is None or test["busbw_gbytes_s"] < limit]
    open_ = [test for test in slow if not any(one.explains(test["nodes"]) for one in isolation.verdicts)]
    if len(tests) >= FEWEST_PAIRS and len(open_) > MANY_PAIRS * len(tests):
        nodes = dict.fromkeys(node for test in open_ for node in test["nodes"])
        yield unknown(
            f"{len(open_)} of {counted(len(tests), 'pair')} are slow or got stuck, and no node explains them ({fold(nodes)}): "
            "not single nodes, but what many of them share",
            source=SOURCE,
            observed=len(open_),
            remedy="Look at switches, uplinks and settings that these nodes have in common; then run it on one rack or leaf at a time.",
        )


def _stuck(verdict: Verdict, isolation: Isolation) -> Finding | None:
    if verdict.kind == "stuck":
        return stuck_pairs.pair(verdict.nodes, isolation.tests)
    if verdict.kind != "node":
        return None
    node = verdict.nodes[0]
    return stuck_pairs.node(node, isolation.tests, isolation.symptoms.get(node, Symptoms(stuck=True)))


def _verdict(verdict: Verdict, symptoms: Mapping[str, Symptoms]) -> Finding:
    ratio = "stuck" if verdict.ratio is None else f"{verdict.ratio:.0%} of the usual bandwidth"
    node = verdict.nodes[0]
    where: dict[str, Any] = {"source": SOURCE, "observed": verdict.ratio}
    if verdict.kind == "path":
        text = f"{node} and {verdict.nodes[1]} are each fine with others, and slow with each other: {ratio}"
        return fail(
            text, node, peer=verdict.nodes[1], cause=LINK, remedy="Look at the switches between these two.", **where
        )
    if verdict.kind == "group":
        text = f"{', '.join(verdict.nodes)} are fast among themselves and slow towards the others ({ratio}): what they share is slow"
        return fail(
            text, node, cause=LINK, remedy="Look at the uplink of the switch that these nodes hang on.", **where
        )
    if verdict.kind == "rail":
        text = f"{node} is slow over {', '.join(verdict.rails)} only ({ratio} over all)"
        remedy = f"Look at cable, port and error counters of {verdict.rails[0]}; until then leave it out with NCCL_IB_HCA=^{verdict.rails[0]} on all nodes."
        return fail(text, node, device=verdict.rails[0], cause="ib-link-or-hca-fault", remedy=remedy, **where)
    return _node(node, ratio, symptoms.get(node, Symptoms(stuck=verdict.stuck)), where)


def _node(node: str, ratio: str, found: Symptoms, where: dict[str, Any]) -> Finding:
    kind = found.kind
    if kind == "dead":
        stage = f" while {found.stage}" if found.stage else ""
        remedy = f"Look at {node}: is it up, and do its address, firewall and NCCL settings let the others in?"
        return fail(
            f"{node} gets nowhere with any partner{stage}: {found.error or 'no answer in time'}",
            node,
            cause="bootstrap-peer-unreachable",
            remedy=remedy,
            **where,
        )
    if kind == "cpu":
        quota = ", and its CPU quota stops it" if found.throttled else ""
        text = f"{node} is slow by itself, not its network: {found.cpu_ratio:.1f} times as long for the same CPU work as its partner{quota} ({ratio})"
        return fail(
            text, node, cause="cpu-starved", remedy="Look at CPU quota, frequency and who else computes there.", **where
        )
    if kind == "lossy":
        out, came = found.idle_loss_out or 0.0, found.idle_loss_in or 0.0
        side = "what it sends" if out >= came else "what is sent to it"
        text = f"{node} loses packets even when hardly anything is sent: {max(out, came):.1%} of {side} ({ratio})"
        return fail(
            text, node, cause=LINK, remedy="Look at cable, optics, port errors and filters on the way.", **where
        )
    if kind == "rdma-errors":
        text = f"{node}: RDMA error counters rose during the test: {', '.join(f'{name} +{value}' for name, value in (found.counters or {}).items())} ({ratio})"
        return fail(text, node, cause="ib-link-or-hca-fault", remedy="Look at cable, optics and switch port.", **where)
    speeds = f"{_rate(found.out_gbytes_s)} out, {_rate(found.in_gbytes_s)} in"
    side = {"throttled-out": "what it sends is limited", "throttled-in": "what is sent to it is limited"}.get(
        kind, "it is slow in both directions"
    )
    text = f"{node}: {side}, without loss and with a healthy CPU ({speeds}; {ratio})"
    return fail(
        text, node, cause=LINK, remedy="Look at link speed, shaping (tc qdisc) and port limits on this side.", **where
    )


def _rate(gbytes_s: float | None) -> str:
    return "?" if gbytes_s is None else f"{gbytes_s * 8:.3g} Gbit/s"
