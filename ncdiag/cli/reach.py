"""`ncdiag reach`."""

from __future__ import annotations

from typing import Any

import click

from ncdiag.cli.gather import choose_probes, gather, reach
from ncdiag.cli.options import FORMATS, fail_on_option, node_options, output_options
from ncdiag.cli.showing import write_findings
from ncdiag.model import Plan
from ncdiag.reach.run import WANTED

reach_options = [
    click.option(
        "--interface",
        metavar="NAME",
        help="Test this interface instead of those that NCCL, gloo, vLLM and Ray will take.",
    ),
    click.option(
        "--budget",
        "budget_s",
        type=click.FloatRange(min=2.5),
        default=60.0,
        show_default=True,
        help="Seconds of testing for each interface; all pairs are tested where they fit, else a choice that crosses every border.",
    ),
]


@click.command()
@node_options
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Test this TCP port, too: the master port, Ray's 6379.",
)
@reach_options[0]
@reach_options[1]
@fail_on_option
@output_options(*FORMATS)
@click.option("--all", "show_all", is_flag=True, help="Show what is ok, too.")
@click.pass_obj
def command(
    obj: dict[str, Any], ports: tuple[int, ...], interface: str | None, budget_s: float, fail_on: str, format_: str, output: str | None, show_all: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Test who reaches whom on the network that the engine will use: TCP both ways, named ports, path MTU.

    Each node listens on the tested interface for as long as the test runs, and answers only to this run's token. Nodes are tested
    in rounds of disjoint pairs, so that none carries more than one test at a time.
    """
    everything, chosen = choose_probes(options["folders"], WANTED, ())
    snapshot = gather(everything, chosen, Plan(), options, obj["quiet"])
    findings = reach(everything, snapshot, options, ports, interface, budget_s, obj["quiet"])
    return write_findings(
        "reach", snapshot, findings, obj, fail_on=fail_on, format_=format_, output=output, show_all=show_all
    )
