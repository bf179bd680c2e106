"""JUnit XML, as CI servers read it: one test case a finding or cause.

`fail` is a failure, `unknown` an error, `skip` skipped; `warn` passes with its text as output, or fails where warnings shall.
The numbers agree with the exit code: failures give 1, errors alone 3.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ncdiag import redact
from ncdiag.model import Cause, Finding, Status
from ncdiag.report.compare import Comparison
from ncdiag.report.folding import gravest
from ncdiag.report.headline import headline, status_of
from ncdiag.report.plain import one_line, plain
from ncdiag.report.plainly import observed
from ncdiag.report.printed import title
from ncdiag.report.result import Result


class Case(NamedTuple):
    """One test case."""

    group: str
    name: str
    status: Status
    message: str
    kind: str
    """The cause's slug, where there is one."""
    text: str


def render(results: Sequence[Result], comparison: Comparison | None = None, fail_on: str = "fail") -> str:
    """One `testsuite` a result, inside one `testsuites`. What ranks printed stands with the first case that failed."""
    root = ElementTree.Element("testsuites", name="ncdiag")
    limit = Status(fail_on).severity
    for result in results:
        suite = ElementTree.SubElement(root, "testsuite", name=_masked(f"ncdiag {result.command}"))
        if result.run.at:
            suite.set("timestamp", _masked(result.run.at.rstrip("Z")))
        if result.run.host:
            suite.set("hostname", _masked(result.run.host))
        cases = _with_printed(list(_cases(result)), result, limit)
        for case in _apart(cases):
            _write(suite, case, limit)
        failures = sum(case.status.severity >= limit for case in cases)
        errors = sum(case.status is Status.UNKNOWN for case in cases)
        skipped = sum(case.status is Status.SKIP for case in cases)
        suite.attrib.update(
            tests=str(len(cases)), failures=str(failures), errors=str(errors), skipped=str(skipped), time="0"
        )
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    root.set("time", "0")
    if comparison is not None and len(root):
        _properties(root[0], comparison)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _cases(result: Result) -> Iterator[Case]:
    if result.kind or result.outcome or not (result.findings or result.causes):
        head = headline(result)
        yield Case("verdict", "verdict", head.status, head.text, result.kind, head.counts)
    for cause in result.causes:
        yield _of_cause(cause)
    for finding in gravest(result.findings):
        yield _of_finding(finding)


def _of_finding(finding: Finding) -> Case:
    place = " ".join(f"{key}={value}" for key, value in finding.where.items())
    lines = [
        finding.summary,
        f"seen: {observed(finding.observed, finding.unit)}" if finding.observed is not None else "",
        f"expected: {observed(finding.expected, finding.unit)}" if finding.expected is not None else "",
        f"read from: {finding.source}" if finding.source else "",
        f"remedy: {finding.remedy}" if finding.remedy else "",
        f"runbook: ncdiag playbook run {finding.cause}" if finding.cause else "",
    ]
    return Case(
        finding.probe or "finding",
        place or "all nodes",
        finding.status,
        finding.summary,
        finding.cause or "",
        _joined(lines),
    )


def _of_cause(cause: Cause) -> Case:
    place = " ".join(f"{key}={value}" for key, value in cause.where.items() if value not in (None, ""))
    lines = [
        f"{cause.confidence}: {cause.summary}",
        *(
            f"{item.source}{f':{item.line}' if item.line is not None else ''}: {item.text}"
            for item in cause.evidence[:50]
        ),
        f"remedy: {cause.remedy}" if cause.remedy else "",
        f"runbook: ncdiag playbook run {cause.playbook}",
    ]
    return Case("cause", f"{cause.cause} {place}".strip(), status_of(cause), cause.summary, cause.cause, _joined(lines))


def _with_printed(cases: list[Case], result: Result, limit: int) -> list[Case]:
    lines = [line for told in result.printed for line in (f"printed by {title(told)}:", *told.lines)]
    first = next((index for index, case in enumerate(cases) if case.status.severity >= limit), None)
    if lines and first is not None:
        cases[first] = cases[first]._replace(text=_joined([cases[first].text, *lines]))
    return cases


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line for line in lines if line)


def _apart(cases: Sequence[Case]) -> Iterator[Case]:
    """Names are made unlike each other: CI servers show only one of equal ones."""
    seen: dict[tuple[str, str], int] = {}
    for case in cases:
        number = seen[case.group, case.name] = seen.get((case.group, case.name), 0) + 1
        yield case if number == 1 else case._replace(name=f"{case.name} ({number})")


def _write(suite: ElementTree.Element, case: Case, limit: int) -> None:
    clean = {"classname": f"ncdiag.{_masked(case.group)}", "name": _masked(case.name), "time": "0"}
    element = ElementTree.SubElement(suite, "testcase", clean)
    message, text = _masked(case.message), plain(redact.text(case.text))
    if case.status.severity >= limit:
        ElementTree.SubElement(
            element, "failure", message=message, type=_masked(case.kind or case.status.value)
        ).text = text
    elif case.status is Status.UNKNOWN:
        ElementTree.SubElement(element, "error", message=message, type=_masked(case.kind or "unknown")).text = text
    elif case.status is Status.SKIP:
        ElementTree.SubElement(element, "skipped", message=message)
    else:
        ElementTree.SubElement(element, "system-out").text = f"{case.status.value}: {text}"


def _masked(text: str) -> str:
    return one_line(redact.text(text))


def _properties(suite: ElementTree.Element, comparison: Comparison) -> None:
    """The comparison, as properties of the first suite."""
    properties = ElementTree.Element("properties")
    suite.insert(0, properties)
    values = {"against": comparison.against, **{name: str(len(items)) for name, items in comparison.lists()}}
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=f"ncdiag.{name}", value=_masked(value))
