"""How `preflight` and `reach` write their findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncdiag.cli.options import SHOWN_AGAIN, exit_code, write_other, write_result
from ncdiag.exits import Exit
from ncdiag.model import Finding, Snapshot


def write_findings(
    command: str,
    snapshot: Snapshot,
    findings: Sequence[Finding],
    obj: dict[str, Any],
    *,
    fail_on: str,
    format_: str,
    output: str | None,
    show_all: bool,
) -> Exit:
    """Writes them in the format that was asked for; the exit code that they mean."""
    code = exit_code(findings, fail_on)
    nodes = list(snapshot.nodes)
    if format_ == "json":
        from ncdiag.report.json import findings_as_json
        from ncdiag.report.machines import machines_of
        from ncdiag.report.run import of_snapshot

        told = findings_as_json(command, nodes, findings, code, of_snapshot(snapshot), machines_of(snapshot))
        write_result(told, output, masked=True, look=SHOWN_AGAIN)
    elif format_ != "text":
        from ncdiag.report.read import of_findings

        write_other(of_findings(command, snapshot, findings, code), format_, output, fail_on)
    else:
        from ncdiag.report.console import findings_as_text

        color = None if output else obj["color"]
        shown = findings_as_text(nodes, findings, show_all=show_all or obj["verbose"] > 0, color=color, more="--all")
        write_result(shown, output)
    return code
