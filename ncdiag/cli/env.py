"""`ncdiag env`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from ncdiag.check import check
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import exit_code, node_options, plan_of, plan_options, write_result
from ncdiag.cli.types import InputFile, OutputFile
from ncdiag.exits import Exit
from ncdiag.model import Finding, Snapshot, Status
from ncdiag.nccl.advice import ALL_NODES
from ncdiag.nccl.compare import Values, differences, with_environment
from ncdiag.nccl.recommend import NEEDS, for_node, recommend, to_unset
from ncdiag.registry import ProbeSet
from ncdiag.suggest import did_you_mean

ENVIRONMENT_PROBES = ("nccl-environment", "framework-environment")
JUDGES = ("bootstrap-interface", "node-address", "rdma-hca-selection", *ENVIRONMENT_PROBES)
"""Probes that hold variables against the machine; preflight asks the same ones. Of two that speak of one setting the first counts."""
WARN = Status.WARN.severity
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
    type=InputFile(allow_dash=True),
    metavar="FILE",
    help="Compare a file with what is needed: shell, env file, docker, Kubernetes, Compose, Ray. --pid compares a process.",
)
@click.option("--explain", "name", metavar="NAME", help="Say what a variable does; nothing is looked at.")
@click.option("-o", "--output", type=OutputFile(), help="Write to this file (mode 0600) instead of stdout.")
@click.pass_obj
def command(
    obj: dict[str, Any], form: str | None, file: str | None, name: str | None, output: str | None, **options: Any
) -> int:
    """Print the environment that this cluster needs, each setting with its reason; or compare one with it.

    Few settings are the best: what NCCL finds by itself is not repeated. Exit code: 0 fine, 1 a comparison found
    something, or something stays wrong whatever is set, 3 something could not be looked at (what rests on it is missing).
    """
    if name is not None:
        return _explain(name, form, output)
    comparing = file is not None or options["pid"] is not None
    if comparing and form not in (None, "json"):
        raise click.UsageError("a comparison is a report: leave --as out, or give --as json")
    written = _read(file) if file is not None else None
    plan = plan_of(options)
    everything, chosen = _probes(options)
    snapshot = gather(everything, chosen, plan, options, obj["quiet"])
    if comparing:
        return _written(obj, snapshot, chosen, written, form, output)
    return _settings(snapshot, chosen, form, output)


def _probes(options: dict[str, Any]) -> tuple[ProbeSet, ProbeSet]:
    """All probes, and those whose facts are wanted."""
    everything, _ = choose_probes(options["folders"], options["only"], options["skip"])
    wanted = dict.fromkeys((*NEEDS, *JUDGES))
    asked = [probe for probe in wanted if not options["only"] or probe in options["only"]]
    return everything, everything.chosen(asked or list(wanted), options["skip"])


def _settings(snapshot: Snapshot, chosen: ProbeSet, form: str | None, output: str | None) -> int:
    """What is needed, and what would be amiss all the same: judged as preflight judges nodes that have these settings beside their own."""
    from ncdiag.report.env import FORMS, as_json, unread

    nodes = _answered(snapshot)
    advice = recommend(nodes)
    wanted: dict[str, Values] = {
        node: {name: value for name, value in _given(nodes, node, None).items() if name not in to_unset(advice, node)}
        | for_node(advice, node)
        for node in nodes.nodes
    }
    amiss = [one for one in _judged(with_environment(nodes, wanted), chosen) if one.status.severity >= WARN]
    failed = any(one.status is Status.FAIL for one in amiss)
    code = Exit.FINDING if failed else Exit.INCOMPLETE if unread(snapshot) else Exit.OK
    if form == "json":
        write_result(as_json(snapshot, advice, amiss, code), output, masked=True)
    else:
        write_result(FORMS[form or "shell"](snapshot, advice, amiss), output)
    return code


def _judged(snapshot: Snapshot, chosen: ProbeSet) -> list[Finding]:
    """What is wrong with a setting is said once, by the probe that knows most of it."""
    found: list[Finding] = []
    for probe in JUDGES:
        if probe in chosen:
            said = {_about(one) for one in found if one.status.severity >= WARN and one.where.get("setting")}
            found += [one for one in check(snapshot, chosen.chosen([probe])) if _about(one) not in said]
    return found


def _with_reason(lacking: Finding, wrong: Finding | None) -> Finding:
    """The comparison knows the value that is needed, a probe what happens with the one that was given."""
    if wrong is None or lacking.expected is None:
        return lacking
    summary = f"{wrong.summary}; it should be {lacking.expected}"
    return replace(lacking, status=wrong.status, summary=summary, source=wrong.source, cause=wrong.cause)


def _about(finding: Finding) -> tuple[Any, Any]:
    return finding.where.get("node"), finding.where.get("setting")


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
    judged = _judged(Snapshot({**snapshot.nodes, **compared.nodes}, snapshot.plan), chosen)
    wrong = {_about(one): one for one in reversed(judged) if one.status is Status.FAIL}
    lacking = [
        _with_reason(replace(one, probe="env"), wrong.get(_about(one)))
        for node in compared.nodes
        for one in differences(compared, advice, node, given[node])
    ]
    said = {_about(one) for one in lacking}
    findings = lacking + [one for one in judged if _about(one) not in said]
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
        hint = f"; did you mean {near}?" if near else did_you_mean(name, explanation.known())
        raise click.UsageError(f"{name} is no variable known here{hint}")
    text = (
        json.dumps({"schema": 1, "command": "env", "explain": found.as_dict()}, indent=1)
        if form == "json"
        else explained(found)
    )
    write_result(text, output)
    return Exit.OK
