"""The verdict on a result: one status and one sentence, for whoever reads no further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ncdiag.check import counts
from ncdiag.model import Cause, Finding, Status
from ncdiag.nodeset import counted
from ncdiag.report.causes import GOOD
from ncdiag.report.folding import folded, nodes_of
from ncdiag.report.result import Result

KINDS = {
    "hang": Status.FAIL,
    "failed": Status.FAIL,
    "progressing": Status.OK,
    "healthy": Status.OK,
    "unknown": Status.UNKNOWN,
}


class Headline(NamedTuple):
    status: Status
    text: str
    """One sentence."""
    counts: str
    """What it counts: `1 fail, 3 warn, 20 ok`; empty where nothing is counted."""


def status_of(cause: Cause) -> Status:
    """How grave a cause of the ranked list is: what is only possible is unknown."""
    if cause.cause in GOOD:
        return Status.OK
    if cause.cause == "unresolved" or cause.confidence == "possible":
        return Status.UNKNOWN
    return Status.FAIL


def headline(result: Result) -> Headline:
    """The hang verdict where there is one, else the first cause, else what the findings amount to."""
    if result.kind:
        status = KINDS.get(result.kind, Status.UNKNOWN)
        if status is Status.FAIL and result.causes and result.causes[0].confidence == "possible":
            status = Status.UNKNOWN
        return Headline(status, result.summary or result.kind, _ranks(result))
    if result.outcome and result.code == 0:
        return Headline(Status.OK, result.outcome, _ranks(result))
    if result.causes:
        first = result.causes[0]
        known = first.cause in (*GOOD, "unresolved")
        return Headline(
            status_of(first),
            first.summary,
            _causes(result.causes) if known else f"{first.confidence}: {first.cause}, {_causes(result.causes)}",
        )
    if result.outcome:
        return Headline(Status.UNKNOWN if result.code == 3 else Status.FAIL, result.outcome, _ranks(result))
    return _of_findings(result)


def _of_findings(result: Result) -> Headline:
    numbers = counts(result.findings)
    said = ", ".join(
        f"{numbers[status.value]:,} {status.value}" for status in reversed(Status) if numbers[status.value]
    )
    nodes = (
        f"{len(result.nodes):,} node{'s' if len(result.nodes) != 1 else ''}" if result.nodes else "what was looked at"
    )
    for status, words in (
        (Status.FAIL, "will stop the engine or keep it from working"),
        (Status.WARN, "may make the engine slow or unreliable"),
    ):
        groups = folded(finding for finding in result.findings if finding.status is status)
        if groups:
            if len(groups) == 1:
                return Headline(status, _alone(groups[0], result.nodes), said)
            where = nodes_of((finding for group in groups for finding in group), result.nodes)
            return Headline(status, f"{len(groups)} things{f' on {where}' if where else ''} {words}.", said)
    if numbers["unknown"]:
        return Headline(
            Status.UNKNOWN,
            f"Nothing wrong was found on {nodes}, but {counted(numbers['unknown'], 'thing')} could not be looked at.",
            said,
        )
    if not result.findings:
        return Headline(Status.UNKNOWN, "Nothing was judged.", "")
    return Headline(Status.OK, f"Nothing wrong was found on {nodes}.", said)


def _alone(alike: Sequence[Finding], nodes: Sequence[str]) -> str:
    """The only thing that is wrong, in its own words, with its nodes where these do not name them."""
    where = nodes_of(alike, nodes)
    summary = alike[0].summary
    return summary if not where or where in summary else f"{where}: {summary}"


def _ranks(result: Result) -> str:
    states: dict[str, int] = {}
    for rank in result.ranks:
        states[rank.state or "seen"] = states.get(rank.state or "seen", 0) + 1
    return ", ".join(f"{number:,} {state}" for state, number in sorted(states.items(), key=lambda item: -item[1]))


def _causes(causes: Sequence[Cause]) -> str:
    return f"{len(causes)} cause{'s' if len(causes) != 1 else ''} considered"
