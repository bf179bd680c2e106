"""From what was measured to findings: wrong data, slower than the hardware allows, slower than before, stuck."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.bandwidth.baseline import Change
from ncdiag.bandwidth.blame import SOURCE
from ncdiag.bandwidth.expect import SLOW, VERY_SLOW, Expectation
from ncdiag.bandwidth.job import Outcome
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.rising import large, rising
from ncdiag.bandwidth.room import written
from ncdiag.bandwidth.session import Agent
from ncdiag.bandwidth.sweep import Row
from ncdiag.model import Finding, fail, ok, skip, unknown, warn
from ncdiag.nodeset import counted

TIME_IS_UP = re.compile(r"timed? ?out", re.I)
"""Gloo: `Timed out waiting 12000ms for recv operation`; torch's store: `Timed out after 13 seconds waiting for clients`, `Socket Timeout`."""
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
