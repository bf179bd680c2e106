"""`ncdiag preflight`."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any, NoReturn

import click

from ncdiag.check import check
from ncdiag.cli.gather import choose_probes, gather, live_nodes, reach
from ncdiag.cli.options import FORMATS, fail_on_option, node_options, output_options, plan_of, plan_options
from ncdiag.cli.reach import budget_option
from ncdiag.cli.showing import write_findings
from ncdiag.reach.members import WANTED, Wanted
from ncdiag.registry import ProbeSet
from ncdiag.sizing import fits


@click.command()
@node_options
@plan_options
@fail_on_option
@output_options(*FORMATS)
@click.option(
    "--reach", "active", is_flag=True, help="Also test who reaches whom (see ncdiag reach): loads the network a little."
)
@budget_option("With --reach: ")
@click.option("--all", "show_all", is_flag=True, help="Show what is ok or does not apply, too.")
@click.pass_obj
def command(
    obj: dict[str, Any],
    active: bool,
    budget_s: float,
    fail_on: str,
    format_: str,
    output: str | None,
    show_all: bool,
    **options: Any,
) -> int:
    """Judge the nodes before an engine is started: which node, which device, which setting is wrong.

    Only reads, unless --reach is given. Exit code: 0 nothing found, 1 something at or above --fail-on, 3 something could not be looked at.
    """
    gc.disable()  # facts and findings stay to the end and hold no cycles: they need not be walked again and again
    plan = plan_of(options)
    everything, chosen = choose_probes(options["folders"], options["only"], options["skip"])
    if not (active or chosen.broken or any(probe.judge for probe in chosen.values())):
        _refuse(everything, chosen)
    wanted = Wanted(plan.ports, budget_s)
    fleet = live_nodes(options, wanted) if active else None
    collected = everything.chosen((*chosen, *WANTED), ()) if active else chosen
    snapshot = gather(everything, collected, plan, options, obj["quiet"], fleet)
    findings = check(snapshot, chosen)
    if set(fits.NEEDS) <= set(chosen):
        findings += [replace(finding, probe=fits.PROBE) for finding in fits.judge(snapshot)]
    if fleet is not None:
        findings += reach(everything, snapshot, fleet, wanted, obj["quiet"])
    return write_findings(
        "preflight", snapshot, findings, obj, fail_on=fail_on, format_=format_, output=output, show_all=show_all
    )


def _refuse(everything: ProbeSet, chosen: ProbeSet) -> NoReturn:
    """Nothing would be judged, which must not look like nothing found."""
    names = ", ".join(chosen)
    judges = ", ".join(probe.id for probe in everything.values() if probe.judge and set(probe.needs) & set(chosen))
    collects = "only collects" if len(chosen) == 1 else "only collect"
    raise click.UsageError(
        f"{names} {collects} what others judge ({judges or 'none here'}); see what it is with: ncdiag collect"
        + "".join(f" --only {name}" for name in chosen)
    )
