"""Findings and causes as the templates show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.model import Cause, Evidence, Finding, Status
from ncdiag.nodeset import counted, fold
from ncdiag.report.causes import beside
from ncdiag.report.compare import Comparison
from ncdiag.report.folding import apart, folded, nodes_of, rest_of, unnamed
from ncdiag.report.headline import headline, status_of
from ncdiag.report.plain import one_line
from ncdiag.report.plainly import observed
from ncdiag.report.result import Result

EVIDENCE = 200
"""Evidence lines of a cause."""


def view(result: Result) -> Mapping[str, Any]:
    """`wrong` (fail, then warn), `unknown` with `advice`, `quiet` (ok and skip)."""
    by_status: dict[Status, list[Finding]] = {status: [] for status in Status}
    for finding in result.findings:
        by_status[finding.status].append(finding)
    groups = {status: [_group(alike, result.nodes) for alike in folded(found)] for status, found in by_status.items()}
    advice = dict.fromkeys(finding.remedy for finding in by_status[Status.UNKNOWN] if finding.remedy)
    return {
        "wrong": groups[Status.FAIL] + groups[Status.WARN],
        "unknown": groups[Status.UNKNOWN],
        "advice": list(advice),
        "quiet": groups[Status.OK] + groups[Status.SKIP],
        "any": bool(result.findings),
    }


def _group(alike: Sequence[Finding], nodes: Sequence[str]) -> Mapping[str, Any]:
    first = alike[0]
    return {
        "status": first.status.value,
        "probe": one_line(first.probe),
        "nodes": nodes_of(alike, nodes),
        "rest": rest_of(alike),
        "count": len(alike),
        "summary": first.summary,
        "apart": apart(alike),
        "observed": _both(alike, "observed"),
        "expected": _both(alike, "expected"),
        "source": first.source,
        "remedy": first.remedy or "",
        "cause": one_line(first.cause or ""),
    }


def _both(alike: Sequence[Finding], name: str) -> str:
    """The value they all have; where they differ, the first and how many others there are."""
    values = list(dict.fromkeys(observed(getattr(finding, name), finding.unit) for finding in alike[:2000]))
    values = [value for value in values if value]
    if len(values) <= 3:
        return "; ".join(values)
    return f"{values[0]}; {counted(len(values) - 1, 'other value')}"


def causes(result: Result) -> list[Mapping[str, Any]]:
    """The ranked list."""
    said = headline(result).text
    return [_cause(cause, said) for cause in result.causes]


def _cause(cause: Cause, said: str) -> Mapping[str, Any]:
    plain_answer = cause.cause in ("healthy", "slow-not-hung", "unresolved")
    return {
        "status": status_of(cause).value,
        "confidence": "" if plain_answer else cause.confidence,
        "name": one_line(cause.cause),
        "where": ", ".join(one_line(f"{key} {value}") for key, value in cause.where.items() if value not in (None, "")),
        "summary": cause.summary,
        "said": cause.summary == said,
        "remedy": cause.remedy,
        "playbook": "" if plain_answer else one_line(cause.playbook),
        "evidence": [_line(item) for item in cause.evidence[:EVIDENCE]],
        "more": max(0, len(cause.evidence) - EVIDENCE),
        "beside": [
            {"title": title.capitalize(), "lines": [_line(item) for item in lines[:EVIDENCE]]}
            for title, lines in beside(cause)
        ],
    }


def _line(item: Evidence) -> Mapping[str, str]:
    return {"place": one_line(item.source) + (f":{item.line}" if item.line is not None else ""), "text": item.text}


def compared(comparison: Comparison) -> Mapping[str, Any]:
    """The lists with their headings, in the order in which they matter."""
    titles = (
        ("fail", "New", "was not there before", comparison.new),
        ("ok", "Fixed", "was there, was looked at again, and is gone", comparison.fixed),
        (
            "unknown",
            "Not judged again",
            "was there; this time nothing looked at it, so it may still be",
            comparison.not_judged,
        ),
        ("warn", "Unchanged", "was there, and still is", comparison.unchanged),
    )
    return {
        "against": comparison.against,
        "lists": [
            {"status": status, "title": title, "meaning": meaning, "items": _items(items), "count": len(items)}
            for status, title, meaning, items in titles
        ],
    }


def _items(items: Sequence[Any]) -> list[Mapping[str, str]]:
    grouped: dict[tuple[str, str, str, str], list[str]] = {}
    for item in items:
        summary = unnamed(item.summary, item.node)
        grouped.setdefault((item.status.value, item.what, item.rest, summary), []).append(item.node)
    shown: list[Mapping[str, str]] = []
    for (status, what, rest, summary), nodes in grouped.items():
        named = one_line(fold(node for node in nodes if node))
        shown.append(
            {
                "status": status,
                "what": one_line(what),
                "where": f"{named} {one_line(rest)}".strip(),
                "summary": summary.replace("\0", nodes[0]),
            }
        )
    return shown
