"""Results in any format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag import redact
from ncdiag.check import counts
from ncdiag.model import SCHEMA
from ncdiag.report.compare import Comparison
from ncdiag.report.folding import gravest
from ncdiag.report.read import Saved
from ncdiag.report.result import Result
from ncdiag.report.retold import comparison_as_text, figures_as_text

FORMATS = ("text", "json", "html", "junit", "prometheus")


def written(
    results: Sequence[Result], format_: str, comparison: Comparison | None = None, fail_on: str = "fail"
) -> str:
    """`html`, `junit` or `prometheus`."""
    if format_ == "html":
        from ncdiag.report.html.page import render

        return render(results, comparison)
    if format_ == "junit":
        from ncdiag.report import junit

        return junit.render(results, comparison, fail_on)
    from ncdiag.report import prometheus

    return prometheus.render(results, comparison)


def as_json(saved: Sequence[Saved], comparison: Comparison | None, code: int) -> str:
    """One result as its command writes it; several under `results`. With `comparison` where two were compared."""
    every = [dict(one.data if one.data is not None else data_of(one.result)) for one in saved]
    data = every[0] if len(every) == 1 else {"schema": SCHEMA, "command": "report", "results": every, "exit": code}
    if comparison is not None:
        data["comparison"] = comparison.as_dict()
    return json.dumps(redact.data(data), indent=1)


def data_of(result: Result) -> Mapping[str, Any]:
    """The JSON contract of a verdict or of findings."""
    head: dict[str, Any] = {"schema": SCHEMA, "command": result.command, "run": result.run.as_dict()}
    if result.kind:
        shown = result.verdict.as_dict()
        return {**head, "verdict": shown.pop("kind"), **shown, "not_read": result.notes, "exit": result.code}
    return {
        **head,
        "nodes": result.nodes,
        "counts": counts(result.findings),
        "exit": result.code,
        "findings": [finding.as_dict() for finding in gravest(result.findings)],
        "machines": result.machines,
    }


def as_text(saved: Sequence[Saved], comparison: Comparison | None, *, show_all: bool, color: str | None) -> str:
    """Each as its command shows it; the comparison last, where a terminal shows it first."""
    parts = [_text(one, show_all, color) for one in saved]
    if comparison is not None:
        parts.append(comparison_as_text(comparison, color=color))
    return "\n".join(parts)


def _text(one: Saved, show_all: bool, color: str | None) -> str:
    result = one.result
    if result.kind:
        from ncdiag.report.hang import verdict_as_text

        return verdict_as_text(result.verdict, result.notes, color=color, verbose=show_all)
    if result.outcome or result.lanes or result.pairs or result.steps:
        return figures_as_text(result, show_all=show_all, color=color)
    if result.causes:
        from ncdiag.report.causes import causes_as_text

        return causes_as_text(result.causes, next_=result.next, notes=result.notes, show_all=show_all, color=color)
    from ncdiag.report.console import findings_as_text

    return findings_as_text(result.nodes, result.findings, show_all=show_all, color=color, more="--all")
