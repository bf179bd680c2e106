"""What nodes have none of: what was skipped for want of it must not look like what was found good."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.model import Finding, Status
from ncdiag.report.folding import nodes_of

KINDS = {"gpu-health": "GPU", "verbs-access": "RDMA device"}
"""Probe -> what there is none of on a node of which it says nothing but `skip`."""


def absent(nodes: Sequence[str], findings: Sequence[Finding]) -> str:
    """`no GPU and no RDMA device on gpu01`, `no RDMA device on all 4 nodes`; empty where nothing is missing, or nobody looked."""
    where: dict[str, list[str]] = {}
    for probe, kind in KINDS.items():
        of = [finding for finding in findings if finding.probe == probe]
        more = {finding.where.get("node") for finding in of if finding.status is not Status.SKIP}
        none = [finding for finding in of if finding.where.get("node") not in more]
        if none:
            where.setdefault(nodes_of(none, nodes) or "these nodes", []).append(kind)
    return "; ".join(f"{' and '.join(f'no {kind}' for kind in kinds)} on {names}" for names, kinds in where.items())
