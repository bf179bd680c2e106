"""The JSON contract for automation: keys only get added."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ncdiag import redact
from ncdiag.check import counts
from ncdiag.model import SCHEMA, Finding


def findings_as_json(command: str, nodes: Sequence[str], findings: Sequence[Finding], code: int) -> str:
    """`{"schema", "command", "nodes", "findings", "counts", "exit"}`, the gravest finding first."""
    ordered = sorted(findings, key=lambda finding: -finding.status.severity)
    return json.dumps(
        redact.data(
            {
                "schema": SCHEMA,
                "command": command,
                "nodes": list(nodes),
                "findings": [finding.as_dict() for finding in ordered],
                "counts": counts(findings),
                "exit": int(code),
            }
        ),
        indent=1,
    )
