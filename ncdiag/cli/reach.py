"""`ncdiag reach`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ncdiag.cli.gather import choose_probes, gather, live_nodes, reach
from ncdiag.cli.options import FORMATS, fail_on_option, output_options, reached_options
from ncdiag.cli.showing import write_findings
from ncdiag.cli.types import Seconds
from ncdiag.fleet.base import FleetError
from ncdiag.fleet.names import expand
from ncdiag.model import Plan
from ncdiag.reach.members import WANTED, Wanted


def budget_option(where: str = "") -> Any:
    """`where`: what has to be given for it to count."""
    every = "all pairs are tested where they fit, else a choice that crosses every border."
    return click.option(
        "--budget",
        "budget_s",
        type=Seconds(min=2.5),
        default=60.0,
        show_default=True,
        help=f"{where}{'s' if where else 'S'}econds of testing for each interface; {every}",
    )


reach_options = [
    click.option(
        "--interface",
        metavar="NAME",
        help="Test this interface instead of those that NCCL, gloo, vLLM and Ray will take.",
    ),
    budget_option(),
    click.option(
        "--pairs",
        type=click.Choice(["budget", "all"]),
        default="budget",
        show_default=True,
        help="all: every pair, however long that takes: 2.5 s a round (4.5 s with RDMA), as many rounds as nodes.",
    ),
    click.option(
        "--between",
        nargs=2,
        metavar="SET SET",
        help="Every node of the one set with every node of the other, and no other pairs: gpu07 gpu[01-16].",
    ),
]


def wanted(
    ports: Sequence[int], budget_s: float, pairs: str, between: tuple[str, str] | None, interface: str | None
) -> Wanted:
    """What the options ask for. Raises click.UsageError."""
    if interface is not None and not interface.strip():
        raise click.UsageError("--interface: the name of an interface is missing, as eth0")
    try:
        sets = None if between is None else (frozenset(expand(between[0])), frozenset(expand(between[1])))
    except FleetError as error:
        raise click.UsageError(f"--between {error}") from None
    return Wanted(ports, budget_s, pairs == "all", sets, interface)


@click.command()
@reached_options
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Test this TCP port, too: the master port, Ray's 6379.",
)
@reach_options[0]
@reach_options[1]
@reach_options[2]
@reach_options[3]
@fail_on_option
@output_options(*FORMATS)
@click.pass_obj
def command(
    obj: dict[str, Any], ports: tuple[int, ...], interface: str | None, budget_s: float, pairs: str, between: tuple[str, str] | None, fail_on: str,
    format_: str, output: str | None, **options: Any,
) -> int:  # fmt: skip
    """Test who reaches whom on the network that the engine will use: TCP both ways, named ports, Ray's, path MTU, RDMA.

    Each node listens on the tested interface for as long as the test runs, and answers only to this run's token. Nodes are tested
    in rounds of disjoint pairs, so that none carries more than one test at a time. RDMA is tested on the ports and GIDs that NCCL
    takes, where libibverbs is there. Nodes that cannot take part are named with the reason, and the others tested.

    Exit code: 0 nothing found, 1 something at or above --fail-on, 3 a node or a pair could not be tested.
    """
    asked = wanted(ports, budget_s, pairs, between, interface)
    everything, chosen = choose_probes(options["folders"], WANTED, ())
    fleet = live_nodes(options, asked)
    snapshot = gather(everything, chosen, Plan(), options, obj["quiet"], fleet)
    findings = reach(everything, snapshot, fleet, asked, obj["quiet"])
    return write_findings(
        "reach", snapshot, findings, obj, fail_on=fail_on, format_=format_, output=output, show_all=True
    )
