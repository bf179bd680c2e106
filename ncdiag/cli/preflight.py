"""`ncdiag preflight`."""

from __future__ import annotations

import gc
from typing import Any

import click

from ncdiag.check import check
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import (
    FORMATS,
    exit_code,
    fail_on_option,
    node_options,
    output_options,
    plan_of,
    plan_options,
    write_other,
    write_result,
)


@click.command()
@node_options
@plan_options
@fail_on_option
@output_options(*FORMATS)
@click.option("--all", "show_all", is_flag=True, help="Show what is ok or does not apply, too.")
@click.pass_obj
def command(obj: dict[str, Any], fail_on: str, format_: str, output: str | None, show_all: bool, **options: Any) -> int:
    """Judge the nodes before an engine is started: which node, which device, which setting is wrong.

    Only reads. Exit code: 0 nothing found, 1 something at or above --fail-on, 3 something could not be looked at.
    """
    plan = plan_of(options)
    everything, chosen = choose_probes(options["folders"], options["only"], options["skip"])
    snapshot = gather(everything, chosen, plan, options, obj["quiet"])
    gc.freeze()  # the facts stay to the end: they need not be walked again with every finding
    findings = check(snapshot, chosen)
    code = exit_code(findings, fail_on)
    if format_ == "json":
        from ncdiag.report.json import findings_as_json

        write_result(findings_as_json("preflight", list(snapshot.nodes), findings, code), output, masked=True)
    elif format_ != "text":
        from ncdiag.report.read import of_findings

        write_other(of_findings("preflight", snapshot, findings, code), format_, output, fail_on)
    else:
        from ncdiag.report.console import findings_as_text

        write_result(
            findings_as_text(
                list(snapshot.nodes),
                findings,
                show_all=show_all or obj["verbose"] > 0,
                color=None if output else obj["color"],
            ),
            output,
        )
    return code
