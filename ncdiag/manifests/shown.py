"""Findings as text: one line each, as compilers do it, and the way out below; broken only where a terminal ends."""

from __future__ import annotations

from collections.abc import Iterable

from ncdiag.check import counts
from ncdiag.model import Finding, Status
from ncdiag.report.plain import one_line
from ncdiag.report.wrapped import wrapped

QUIET = (Status.OK, Status.SKIP)


def as_text(findings: Iterable[Finding], show_all: bool) -> str:
    findings = list(findings)
    lines = []
    for finding in findings:
        if show_all or finding.status not in QUIET:
            line = one_line(f"{finding.source}: {finding.status.value}: {finding.summary} [{finding.probe}]")
            lines.append(wrapped(line, "  "))
            if finding.remedy and finding.status not in QUIET:
                lines.append(wrapped(one_line(f"    {finding.remedy}"), "    "))
    number = counts(findings)
    lines.append(
        ", ".join(f"{number[status.value]} {status.value}" for status in reversed(Status) if number[status.value])
        or "nothing to judge"
    )
    return "\n".join(lines) + "\n"
