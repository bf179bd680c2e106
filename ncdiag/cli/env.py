"""`ncdiag env`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from ncdiag.check import check
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import exit_code, node_options, plan_of, plan_options, write_result
from ncdiag.exits import Exit
from ncdiag.model import Finding, Snapshot
from ncdiag.nccl.advice import ALL_NODES
from ncdiag.nccl.compare import Values, differences, with_environment
from ncdiag.nccl.recommend import NEEDS, recommend
from ncdiag.registry import ProbeSet

ENVIRONMENT_PROBES = ("nccl-environment", "framework-environment")
MAX_FILE_BYTES = 4 << 20


@click.command()
@node_options
@plan_options
@click.option(
    "--as",
    "form",
    type=click.Choice(["shell", "docker", "kubernetes", "ray", "json"]),
    help="How the settings are written; default: shell, and a report with --check or --pid.",
)
@click.option(
    "--check",
    "file",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Compare a file with what is needed: shell, env file, docker, Kubernetes, Compose, Ray. --pid compares a process.",
)
@click.option("--explain", "name", metavar="NAME", help="Say what a variable does; nothing is looked at.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Write to this file (mode 0600) instead of stdout."
)
@click.pass_obj
def command(
    obj: dict[str, Any], form: str | None, file: str | None, name: str | None, output: str | None, **options: Any
) -> int:
    """Print the environment that this cluster needs, each setting with its reason; or compare one with it.

    Few settings are the best: what NCCL finds by itself is not repeated. Exit code: 0 fine, 1 a comparison found
    something, 3 something could not be looked at (what rests on it is missing).
    """
    if name is not None:
        return _explain(name, form, output)
    comparing = file is not None or options["pid"] is not None
    if comparing and form not in (None, "json"):
        raise click.UsageError("a comparison is a report: leave --as out, or give --as json")
    written = _read(file) if file is not None else None
    plan = plan_of(options)
    everything, chosen = _probes(options, comparing)
    snapshot = gather(everything, chosen, plan, options, obj["quiet"])
    return _written(obj, snapshot, chosen, written, form, output) if comparing else _settings(snapshot, form, output)


def _probes(options: dict[str, Any], comparing: bool) -> tuple[ProbeSet, ProbeSet]:
    wanted = (*NEEDS, *(ENVIRONMENT_PROBES if comparing else ()))
    everything, _ = choose_probes(options["folders"], options["only"], options["skip"])
    asked = [probe for probe in wanted if not options["only"] or probe in options["only"]]
    return everything, everything.chosen(list(dict.fromkeys(asked)) or list(wanted), options["skip"])


def _settings(snapshot: Snapshot, form: str | None, output: str | None) -> int:
    from ncdiag.report.env import FORMS, as_json, unread

    advice = recommend(_answered(snapshot))
    code = Exit.INCOMPLETE if unread(snapshot) else Exit.OK
    if form == "json":
        write_result(as_json(snapshot, advice, None, code), output, masked=True)
    else:
        write_result(FORMS[form or "shell"](snapshot, advice), output)
    return code


def _written(
    obj: dict[str, Any],
    snapshot: Snapshot,
    chosen: ProbeSet,
    written: dict[str, Values] | None,
    form: str | None,
    output: str | None,
) -> int:
    from ncdiag.report.console import findings_as_text
    from ncdiag.report.env import as_json

    nodes = _answered(snapshot)
    given = {node: _given(nodes, node, written) for node in nodes.nodes}
    compared = with_environment(nodes, given) if written is not None else nodes
    advice = recommend(compared)
    findings: list[Finding] = []
    for node in compared.nodes:
        findings += [replace(one, probe="env") for one in differences(compared, advice, node, given[node])]
    whole = Snapshot({**snapshot.nodes, **compared.nodes}, snapshot.plan)
    said = {(one.where.get("node"), one.where.get("setting")) for one in findings}
    findings += [
        one
        for one in check(whole, chosen.chosen([probe for probe in chosen if probe in ENVIRONMENT_PROBES]))
        if (one.where.get("node"), one.where.get("setting", "")) not in said
    ]
    code = exit_code(findings, "warn")
    if form == "json":
        write_result(as_json(snapshot, advice, findings, code), output, masked=True)
    else:
        color = None if output else obj["color"]
        write_result(findings_as_text(list(snapshot.nodes), findings, show_all=obj["verbose"] > 0, color=color), output)
    return code


def _given(snapshot: Snapshot, node: str, written: dict[str, Values] | None) -> Values:
    """What the file says for that node (under its name or its host name), or what its process has."""
    if written is not None:
        host = str(snapshot.nodes[node].meta.get("hostname") or node)
        return {**written.get(ALL_NODES, {}), **written.get(node, {}), **written.get(host, {})}
    found: dict[str, str | None] = {}
    for probe in ENVIRONMENT_PROBES:
        found.update((snapshot.facts(node, probe) or {}).get("environ") or {})
    return found


def _answered(snapshot: Snapshot) -> Snapshot:
    return Snapshot({name: node for name, node in snapshot.nodes.items() if not node.unreachable}, snapshot.plan)


def _read(file: str) -> dict[str, Values]:
    from ncdiag.nccl import written

    try:
        if file == "-":
            text = sys.stdin.read(MAX_FILE_BYTES)
        else:
            with open(file, encoding="utf-8", errors="backslashreplace") as source:
                text = source.read(MAX_FILE_BYTES)
        return dict(written.read(text, file))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    except written.NotUnderstood as error:
        raise click.UsageError(f"{file}: {error}") from None


def _explain(name: str, form: str | None, output: str | None) -> int:
    import json

    from ncdiag.nccl import explanation
    from ncdiag.report.variable import explained

    found = explanation.explain(name)
    if found is None:
        near = explanation.nearest(name)
        raise click.UsageError(f"{name} is no variable known here" + (f"; did you mean {near}?" if near else ""))
    text = (
        json.dumps({"schema": 1, "command": "env", "explain": found.as_dict()}, indent=1)
        if form == "json"
        else explained(found)
    )
    write_result(text, output)
    return Exit.OK
