"""`ncdiag topo`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from ncdiag import redact
from ncdiag.check import check, counts
from ncdiag.cli.options import exit_code, fail_on_option, output_options, read_env_file, write_result
from ncdiag.cli.types import InputFile
from ncdiag.exits import Exit
from ncdiag.model import SCHEMA, Finding, Snapshot, Status, unknown
from ncdiag.nccl.graph_xml import Graphs, looks_like_graphs, parse_graphs
from ncdiag.nccl.graph_xml import as_data as graphs_as_data
from ncdiag.nccl.rules import Rules, rules_for
from ncdiag.nccl.settings import Settings, settings_from
from ncdiag.nccl.topology_check import check_topology, compare_topologies
from ncdiag.nccl.topology_view import View, as_data, view
from ncdiag.nccl.topology_xml import parse_topology
from ncdiag.nccl.version import Version, dotted, parse_version
from ncdiag.registry import ProbeSet

MAX_FILE_BYTES = 32 << 20
LIVE_TIMEOUT_S = 90.0
SETTINGS = ("nccl-environment", "nccl-conf-files")
"""What is drawn rests on NCCL's settings: where they could not be read, it is not known."""
LIVE_OPTIONS = {"nodes": "--nodes", "ssh_user": "--ssh-user", "ssh_config": "--ssh-config", "pid": "--pid"}
SOURCES = ("pci-devices", "rdma-devices", "nccl-environment", "nccl-conf-files", "nccl-library", "gpus", "gpudirect")


class Read(NamedTuple):
    machines: list[tuple[str, View]]
    graphs: list[tuple[str, Graphs]]
    findings: list[Finding]


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE|live…", type=InputFile(folders=True, allow_dash=True))
@click.option(
    "--nccl-version", metavar="X.Y.Z", help="The NCCL whose rules hold; the newest known where it is not given."
)
@click.option("--gdr-level", metavar="LEVEL", help="As NCCL_NET_GDR_LEVEL: LOC, PIX, PXB, P2C, PXN, PHB, SYS …")
@click.option("--env-file", type=InputFile(), help="NAME=VALUE lines with the other NCCL settings.")
@click.option("--nodes", default="local", show_default=True, metavar="WHERE", help="With `live`: which nodes.")
@click.option("--ssh-user", metavar="USER", help="With `live` over SSH: log in as this user.")
@click.option("--ssh-config", type=InputFile(exists=True), help="With `live` over SSH: this configuration file.")
@click.option("--pid", type=int, metavar="PID", help="With `live`: a process of the engine, for its settings.")
@fail_on_option
@output_options("text", "json")
@click.pass_obj
def command(
    obj: dict[str, Any],
    files: tuple[str, ...],
    nccl_version: str | None,
    gdr_level: str | None,
    env_file: str | None,
    fail_on: str,
    format_: str,
    output: str | None,
    **where: Any,
) -> int:
    """Draw a machine's topology as NCCL sees it: tree, GPU-to-NIC distances, NICs that each GPU takes, GPUDirect.

    Every name of a path that is shown (PIX, P2C, SYS …) is explained below it.

    FILE is a dump that NCCL wrote (NCCL_TOPO_DUMP_FILE, NCCL_GRAPH_DUMP_FILE) or a file for NCCL_TOPO_FILE, `-` stdin, `live`
    this machine's /sys and driver. Several are compared with each other.

    Exit code: 0 nothing found, 1 something at or above --fail-on, 3 something could not be read.
    """
    _must_be_live(files)
    version = _version(nccl_version)
    rules = rules_for(version)
    environ = read_env_file(env_file)
    if gdr_level is not None:
        environ["NCCL_NET_GDR_LEVEL"] = _level(gdr_level, rules)
    read = Read([], [], [])
    for note in settings_from(environ, rules).notes:
        click.echo(f"note: {note}", err=True)
    for name in files:
        if name == "live":
            _live(read, where, version, environ, obj["quiet"])
        else:
            _file(read, name, rules, settings_from(environ, rules).settings)
    findings = [*read.findings]
    for name, shown in read.machines:
        findings += check_topology(shown, name)
    if len(read.machines) > 1:
        findings += compare_topologies(read.machines)
    findings = [replace(finding, probe=finding.probe or "topology") for finding in findings]
    code = exit_code(findings, fail_on)
    text = _json(read, findings, code) if format_ == "json" else _text(read, findings, None if output else obj["color"])
    write_result(text, output)
    return code


def _must_be_live(files: Sequence[str]) -> None:
    """A node that nobody would be asked is a mistake. Raises click.UsageError."""
    if "live" in files:
        return
    context = click.get_current_context()
    for name, option in LIVE_OPTIONS.items():
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{option} holds for `live`, and only files are named: ncdiag topo live {option} …")


def _level(text: str, rules: Rules) -> str:
    """Raises click.UsageError."""
    if settings_from({"NCCL_NET_GDR_LEVEL": text}, rules).settings.gdr_level is None:
        known = " ".join(rules.types[: rules.rank("SYS") + 1])
        raise click.UsageError(
            f"--gdr-level {text}: not a level of NCCL {dotted(rules.version)}; there are, in capitals: {known}"
        )
    return text


def _version(text: str | None) -> Version | None:
    if text is None:
        return None
    version = parse_version(text)
    if version is None:
        raise click.UsageError(f"--nccl-version {text}: not a version; write it like 2.27.3")
    return version


def _file(read: Read, name: str, rules: Rules, settings: Settings) -> None:
    text = _content(name)
    shown = "stdin" if name == "-" else os.path.basename(name)
    try:
        if looks_like_graphs(text):
            read.graphs.append((shown, parse_graphs(text)))
        else:
            read.machines.append((shown, view(parse_topology(text), rules, settings)))
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}; a topology or graph dump of NCCL is wanted") from None


def _content(name: str) -> str:
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(name, "rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{name}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise click.UsageError(f"{name}: larger than {MAX_FILE_BYTES >> 20} MiB, which no topology dump is")
    return raw.decode("utf-8", "replace")


def _live(
    read: Read, where: Mapping[str, Any], version: Version | None, environ: Mapping[str, str], quiet: bool
) -> None:
    from ncdiag.cli.gather import choose_probes, gather
    from ncdiag.model import Plan
    from ncdiag.nccl.machine import topology

    everything, chosen = choose_probes((), SOURCES, ())
    options = {**where, "folders": (), "python": None, "env_file": None, "timeout_s": LIVE_TIMEOUT_S}
    snapshot = gather(everything, chosen, Plan(), options, quiet)
    for name, node in snapshot.nodes.items():
        shown = topology(snapshot, name, environ, version)
        if shown is not None:
            read.machines.append((name, shown))
            read.findings.extend(_not_read(snapshot, everything.chosen(SETTINGS), name))
            continue
        reason = node.unreachable or node.errors.get("pci-devices", "no answer")
        read.findings.append(
            unknown(f"the PCI tree of {name} could not be read: {reason}", name, source="/sys/bus/pci")
        )


def _not_read(snapshot: Snapshot, settings: ProbeSet, name: str) -> Iterator[Finding]:
    """What the drawing of that node lacks."""
    node = snapshot.nodes[name]
    found = [one for one in check(Snapshot({name: node}, snapshot.plan), settings) if one.status is Status.UNKNOWN]
    yield from found
    for probe in sorted({*SOURCES} & {*node.errors} - {one.source for one in found}):
        yield unknown(f"{probe} could not be read: {node.errors[probe]}", name, source=probe)


def _json(read: Read, findings: Sequence[Finding], code: Exit) -> str:
    from ncdiag.report.run import now

    data = {
        "schema": SCHEMA,
        "command": "topo",
        "run": now().as_dict(),
        "machines": [{"name": name, **as_data(shown)} for name, shown in read.machines],
        "graphs": [{"name": name, **graphs_as_data(graphs)} for name, graphs in read.graphs],
        "findings": [finding.as_dict() for finding in findings],
        "counts": counts(findings),
        "exit": int(code),
    }
    return json.dumps(redact.data(data), indent=1)


def _text(read: Read, findings: Sequence[Finding], color: str | None) -> str:
    from ncdiag.report.console import findings_as_text
    from ncdiag.report.topology import gpu_matrix_as_text, graphs_as_text, legend_as_text, topology_as_text

    parts = []
    for name, shown in read.machines:
        parts += [topology_as_text(name, shown, color=color), gpu_matrix_as_text(shown, color=color)]
    parts += [graphs_as_text(name, graphs, color=color) for name, graphs in read.graphs]
    if read.machines or findings:
        judged = findings_as_text([name for name, _ in read.machines], findings, show_all=False, color=color)
        parts.append(judged.lstrip("\n"))
    text = "\n".join(part for part in parts if part)
    legend = legend_as_text(text, color=color)
    return f"{text}\n{legend}" if legend else text
