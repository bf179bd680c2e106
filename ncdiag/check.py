"""Judges a snapshot: pure, the same on a node, on a laptop and in a test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ncdiag.model import Finding, Probe, Snapshot, Status, unknown
from ncdiag.registry import ProbeSet


def check(snapshot: Snapshot, probes: ProbeSet) -> list[Finding]:
    """The findings of every probe, each probe behind its own fence; none without at least one finding."""
    findings = [
        unknown(
            f"{name} gave nothing: {node.unreachable}",
            name,
            source="node",
            remedy="see that the node can be reached and has python3 (3.8 or newer), then run it again",
        )
        for name, node in snapshot.nodes.items()
        if node.unreachable
    ]
    findings = [replace(finding, probe="node") for finding in findings]
    for name, reason in probes.broken.items():
        findings.append(replace(unknown(f"the probe {name} cannot be loaded: {reason}"), probe=name))
    for probe in probes.values():
        findings.extend(_judged(snapshot, probe))
    return findings


def _judged(snapshot: Snapshot, probe: Probe) -> Iterable[Finding]:
    findings = []
    for name, node in snapshot.nodes.items():
        for source in (probe.id, *probe.needs) if node.errors else ():
            if source in node.errors:
                findings.append(unknown(f"{source} could not be read: {node.errors[source]}", name, source=source))
    if probe.judge is not None:
        try:
            for finding in probe.judge(snapshot):
                findings.append(_sound(finding))
        except Exception as error:
            findings.append(unknown(f"the probe broke while judging: {type(error).__name__}: {error}"))
        if not findings:
            findings.append(unknown("nothing to judge: no node has facts for it"))
    return [finding.of(probe.id) for finding in findings]


def _sound(finding: Finding) -> Finding:
    if not isinstance(finding, Finding) or not isinstance(finding.status, Status):
        raise TypeError(f"judge gave {finding!r}, which is no finding")
    return finding


def counts(findings: Iterable[Finding]) -> dict[str, int]:
    """Status -> number of findings, every status present."""
    numbers = {status.value: 0 for status in Status}
    for finding in findings:
        numbers[finding.status.value] += 1
    return numbers
