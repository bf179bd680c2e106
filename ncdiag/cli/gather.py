"""What `preflight` and `collect` share: from the options to a snapshot."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ncdiag import redact
from ncdiag.cli.options import read_env_file
from ncdiag.fleet import Fleet, FleetError, Request, open_fleet
from ncdiag.model import Finding, Plan, Snapshot
from ncdiag.reach.members import Wanted
from ncdiag.registry import ProbeSet, load
from ncdiag.report.progress import Progress
from ncdiag.suggest import did_you_mean

if TYPE_CHECKING:
    from ncdiag.fleet.remote import RemoteFleet


def choose_probes(folders: Sequence[str], only: Sequence[str], skip: Sequence[str]) -> tuple[ProbeSet, ProbeSet]:
    """All probes, and the chosen ones. Raises click.UsageError."""
    try:
        everything = load(folders)
        chosen = everything.chosen(only, skip)
    except FileNotFoundError as error:
        raise click.UsageError(str(error)) from None
    except KeyError as error:
        name = error.args[0]
        alike = [other for other in everything if set(name.split("-")) & set(other.split("-"))] or everything
        hint = did_you_mean(name, everything) or f"; there are: {', '.join(alike)}"
        raise click.UsageError(f"no probe is called {name}{hint}") from None
    if not chosen and not chosen.broken:
        raise click.UsageError("--only and --skip leave no probe")
    return everything, chosen


def gather(
    everything: ProbeSet,
    chosen: ProbeSet,
    plan: Plan,
    options: dict[str, Any],
    quiet: bool,
    fleet: Fleet | None = None,
) -> Snapshot:
    """Collects on the fleet, that of the options where none is given. Raises click.UsageError when the fleet as a whole cannot be used."""
    _must_be_here(options)
    request = Request(
        everything.sources(chosen),
        tuple(options["folders"]),
        options["python"],
        options["pid"],
        redact.environ(read_env_file(options["env_file"])),
        plan.model,
        options["timeout_s"],
    )
    try:
        fleet = fleet or open_fleet(options["nodes"], ssh_user=options["ssh_user"], ssh_config=options["ssh_config"])
        names = fleet.names()
        with Progress(len(request.probes if names is None else names), quiet) as progress:
            nodes = fleet.collect(request, progress.step)
    except FleetError as error:
        raise click.UsageError(str(error)) from None
    for note in () if quiet else fleet.notes:
        click.echo(f"note: {note}", err=True)
    return Snapshot({node.node: node for node in nodes}, plan)


def _must_be_here(options: dict[str, Any]) -> None:
    """A pid or an interpreter that is not on this machine is a mistake, not a finding. Raises click.UsageError."""
    if options["nodes"] != "local":
        return
    pid, python = options["pid"], options["python"]
    if pid is not None and not os.path.exists(f"/proc/{pid}"):
        raise click.UsageError(f"--pid {pid}: no such process here; see: ps -ef | grep -i vllm")
    if python is not None and not os.path.exists(python):
        raise click.UsageError(f"--python {python}: no such file")


def live_nodes(options: dict[str, Any], wanted: Wanted) -> RemoteFleet:
    """The fleet whose nodes can be tested against each other. Raises click.UsageError, as far as possible before any is asked."""
    from ncdiag.fleet.remote import RemoteFleet
    from ncdiag.reach.members import must_name_pairs

    try:
        fleet = open_fleet(options["nodes"], ssh_user=options["ssh_user"], ssh_config=options["ssh_config"])
        if not isinstance(fleet, RemoteFleet):
            raise FleetError(
                f"--nodes {options['nodes']}: reachability is tested between several live nodes; name them with ssh:, slurm, ray or k8s:"
            )
        if (names := fleet.names()) is not None:
            must_name_pairs(names, wanted.between)
    except FleetError as error:
        raise click.UsageError(str(error)) from None
    return fleet


def reach(everything: ProbeSet, snapshot: Snapshot, fleet: RemoteFleet, wanted: Wanted, quiet: bool) -> list[Finding]:
    """Tests the nodes of a snapshot against each other; what takes no part is a finding. Raises click.UsageError when they cannot be."""
    from ncdiag.reach import run
    from ncdiag.reach.members import left_out, members, must_name_pairs
    from ncdiag.reach.targets import ray_ports

    try:
        must_name_pairs(list(snapshot.nodes), wanted.between)
        found, able = members(snapshot, everything, wanted)
        findings = list(left_out(snapshot, found, able, wanted))
        labels = ray_ports(snapshot, random.Random())
        for what, nodes in found.items():
            with Progress(len(nodes), quiet) as progress:
                findings += run.test(fleet, what, nodes, wanted, progress.step, labels=labels)
    except FleetError as error:
        raise click.UsageError(str(error)) from None
    return [replace(finding, probe="reach") for finding in findings]
