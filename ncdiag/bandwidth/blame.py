"""From the verdicts of the isolation to findings: who is to blame, and what is the matter with them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ncdiag.bandwidth import stuck_pairs
from ncdiag.bandwidth.isolation.board import Verdict
from ncdiag.bandwidth.pairs import Isolation
from ncdiag.bandwidth.symptoms import Symptoms
from ncdiag.model import Finding, fail, unknown, warn
from ncdiag.nodeset import counted, fold

LINK = "network-link-degraded"
SOURCE = "ncdiag bandwidth"
FEWEST_PAIRS, MANY_PAIRS = 6, 1 / 3
"""From so many pairs on, and such a share of them without an explanation, it is nobody in particular."""
LARGE_GROUP = 1 / 4
"""A greater share of all nodes that is slow towards the others may as well be the healthy side."""


def isolated(isolation: Isolation) -> Iterator[Finding]:
    """Of every verdict, and of what the pairs have told beside it."""
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
        yield _stuck(verdict, isolation) or _verdict(verdict, isolation)
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


def _verdict(verdict: Verdict, isolation: Isolation) -> Finding:
    ratio = "stuck" if verdict.ratio is None else f"{verdict.ratio:.0%} of the usual bandwidth"
    node = verdict.nodes[0]
    where: dict[str, Any] = {"source": SOURCE, "observed": verdict.ratio}
    if verdict.kind == "path":
        text = f"{node} and {verdict.nodes[1]} are each fine with others, and slow with each other: {ratio}"
        return fail(
            text, node, peer=verdict.nodes[1], cause=LINK, remedy="Look at the switches between these two.", **where
        )
    if verdict.kind == "group":
        everybody = {name for test in isolation.tests for name in test["nodes"]}
        many = 0 < LARGE_GROUP * len(everybody) < len(verdict.nodes)
        shared = "what they share, or what the others share, is slow" if many else "what they share is slow"
        text = f"{', '.join(verdict.nodes)} are fast among themselves and slow towards the others ({ratio}): {shared}"
        remedy = (
            f"Look at the uplink of the switch that these nodes hang on{', and at that of the others' if many else ''}."
        )
        return fail(text, node, cause=LINK, remedy=remedy, **where)
    if verdict.kind == "rail":
        text = f"{node} is slow over {', '.join(verdict.rails)} only ({ratio} over all)"
        remedy = f"Look at cable, port and error counters of {verdict.rails[0]}; until then leave it out with NCCL_IB_HCA=^{verdict.rails[0]} on all nodes."
        return fail(text, node, device=verdict.rails[0], cause="ib-link-or-hca-fault", remedy=remedy, **where)
    return _node(node, ratio, isolation.symptoms.get(node, Symptoms(stuck=verdict.stuck)), where)


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
