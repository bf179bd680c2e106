"""The JSON contract for automation: keys only get added."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag import redact
from ncdiag.check import counts
from ncdiag.model import SCHEMA, Finding
from ncdiag.report.run import Run


def findings_as_json(
    command: str,
    nodes: Sequence[str],
    findings: Sequence[Finding],
    code: int,
    run: Run,
    machines: Sequence[Mapping[str, Any]] = (),
) -> str:
    """`{"schema", "command", "run", "nodes", "counts", "exit", "machines", "findings"}`, the gravest finding first; one finding a line.

    `machines`: topologies, nodes that are built alike once.
    """
    ordered = sorted(findings, key=lambda finding: -finding.status.severity)
    head = {
        "schema": SCHEMA,
        "command": command,
        "run": run.as_dict(),
        "nodes": list(nodes),
        "counts": counts(findings),
        "exit": int(code),
        "machines": redact.data(machines),
    }
    lines = ",\n".join(json.dumps(_masked(finding)) for finding in ordered)
    return f'{json.dumps(head)[:-1]},\n"findings": [\n{lines}\n]}}'


PLAIN = ("status", "probe", "cause", "playbook")
"""Words of ncdiag's own, in which no secret stands."""


def _masked(finding: Finding) -> dict[str, Any]:
    data = finding.as_dict()
    for key, value in data.items():
        if key not in PLAIN:
            data[key] = redact.data(value)
    return data
