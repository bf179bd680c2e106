"""What the tests of probes share: judge given facts, or collect on a Host and judge."""

from __future__ import annotations

from typing import Any

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot

PROBES = registry.load()


def judged(probe: str, facts: dict[str, Any], plan: Plan | None = None) -> list[Finding]:
    """The findings of `probe` on `facts`: node -> what its collect would have returned."""
    nodes = {node: NodeFacts(node, {probe: value}) for node, value in facts.items()}
    return check(Snapshot(nodes, plan or Plan()), PROBES.chosen([probe]))


def statuses(findings: list[Finding]) -> list[str]:
    return [finding.status.value for finding in findings]


def collected(probe: str, host: Host) -> NodeFacts:
    return collect(host, [PROBES[probe]])
