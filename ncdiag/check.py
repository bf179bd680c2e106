"""Judges a snapshot: pure, the same on a node, on a laptop and in a test."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ncdiag.model import Finding, Probe, Snapshot, Status, unknown
from ncdiag.registry import ProbeSet

_WAYS = (
    ("Host key verification failed", "compare its host key and accept it once: ssh NODE true (a node that was installed anew: ssh-keygen -R NODE first)"),
    (r"Permission denied \(", "let this user log in without a question (ssh-copy-id NODE), or name another one with --ssh-user"),
    ("Could not resolve hostname", "name it as DNS, /etc/hosts or OpenSSH's configuration (--ssh-config) know it"),
    (r"ssh: connect to host .*Connection refused", "start sshd there, or give its port in OpenSSH's configuration (--ssh-config)"),
    (r"ssh: connect to host .*(?:No route to host|Network is unreachable|timed out)", "see that it is up, and reached from here: ip route get ADDRESS, ssh NODE true"),
)  # fmt: skip
"""Words of OpenSSH and of the kernel, and what to do."""


def way_back(reason: str) -> str:
    """What makes a node answer that gave nothing, by what it said."""
    otherwise = "see that the node can be reached and has python3 (3.8 or newer), then run it again"
    return next((way for words, way in _WAYS if re.search(words, reason)), otherwise)


def check(snapshot: Snapshot, probes: ProbeSet) -> list[Finding]:
    """The findings of every probe, each probe behind its own fence; none without at least one finding."""
    findings = [
        unknown(
            f"{name} gave nothing: {node.unreachable}",
            name,
            source="node",
            remedy=way_back(node.unreachable),
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
