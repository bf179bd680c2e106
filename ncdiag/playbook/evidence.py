"""From answers and findings to an outcome and to evidence. Pure."""

from __future__ import annotations

import shlex

from ncdiag.inwords import figure
from ncdiag.model import Finding, Status
from ncdiag.playbook.record import Seen
from ncdiag.playbook.schema import Expect, Verify
from ncdiag.playbook.targets import Answer


def judge(answers: list[Answer], expect: Expect | None) -> str:
    """`met`, `unmet` or `unknown`; without expectation `read` or `unknown`. One node is enough for `unmet`, and for
    `unknown`."""
    if not answers or any(answer.rc is None for answer in answers):
        failed = expect is not None and any(a.rc is not None and not _meets(a, expect) for a in answers)
        return "unmet" if failed else "unknown"
    if expect is None:
        return "read"
    return "met" if all(_meets(answer, expect) for answer in answers) else "unmet"


def _meets(answer: Answer, expect: Expect) -> bool:
    return (
        (expect.exit is None or answer.rc == expect.exit)
        and all(text in answer.text for text in expect.contains)
        and not any(text in answer.text for text in expect.lacks)
    )


def verify_text(verify: Verify) -> str:
    """How a remedy is proved, in words."""
    if verify.probe is not None:
        return f"ncdiag preflight --only {verify.probe}"
    return shlex.join(verify.run) if verify.run is not None else str(verify.look)


def worst(findings: list[Finding]) -> Status:
    """The worst status; the list is never empty."""
    return max((finding.status for finding in findings), key=lambda status: status.severity)


def seen_in(findings: list[Finding]) -> list[Seen]:
    """Findings as evidence: where it is, what was seen."""
    rows = []
    for finding in findings:
        seen = f" (seen: {figure(finding.observed, finding.unit)})" if finding.observed not in (None, {}, []) else ""
        text = f"{finding.status.value}: {finding.summary}{seen}"
        rows.append((str(finding.where.get("node", "")), finding.source or finding.probe, text))
    return fold(rows)


def fold(rows: list[tuple[str, str, str]]) -> list[Seen]:
    """`(node, source, text)` rows; nodes with the same source and text become one entry."""
    folded: dict[tuple[str, str], list[str]] = {}
    for node, source, text in rows:
        folded.setdefault((source, text), []).append(node)
    return [Seen(tuple(dict.fromkeys(nodes)), source, text) for (source, text), nodes in folded.items()]
