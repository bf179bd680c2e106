"""`ncdiag env`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ncdiag import redact
from ncdiag.check import check
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import exit_code, node_options, plan_of, plan_options, write_result
from ncdiag.cli.types import InputFile, OutputFile
from ncdiag.exits import Exit
from ncdiag.model import Finding, Snapshot, Status, unknown
from ncdiag.nccl.advice import ALL_NODES
from ncdiag.nccl.compare import Values, differences, with_environment
from ncdiag.nccl.recommend import NEEDS, for_node, recommend, to_unset
from ncdiag.nodeset import counted, fold
from ncdiag.registry import ProbeSet
from ncdiag.suggest import did_you_mean

ENVIRONMENT_PROBES = ("nccl-environment", "framework-environment")
JUDGES = ("bootstrap-interface", "node-address", "rdma-hca-selection", *ENVIRONMENT_PROBES)
"""Probes that hold variables against the machine; preflight asks the same ones. Of two that speak of one setting the first counts."""
WARN = Status.WARN.severity
MAX_FILE_BYTES = 4 << 20
MAX_STRANGE = 0.05
"""Share of control characters and undecoded bytes in a text; comments may be in an old encoding."""


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
        subject = file if file not in (None, "-") else "stdin" if file else _process(options)
        return _written(obj, snapshot, chosen, written, subject, form, output)
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
    written: File | None,
    subject: str,
    form: str | None,
    output: str | None,
) -> int:
    from ncdiag.report.console import findings_as_text
    from ncdiag.report.env import as_json

    nodes = _answered(snapshot)
    values = written.values if written is not None else None
    given = {node: _given(nodes, node, values) for node in nodes.nodes}
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
    findings += [replace(one, probe="env") for one in written.unread] if written is not None else []
    code = exit_code(findings, "warn")
    if form == "json":
        write_result(as_json(snapshot, advice, findings, code), output, masked=True)
    else:
        color = None if output else obj["color"]
        names = {name for values in given.values() for name in values}
        told = f"compared: {counted(len(names), 'variable')} for NCCL, gloo, vLLM, torch or Ray in {subject}, with what {fold(nodes.nodes)} needs"
        write_result(
            findings_as_text(
                list(snapshot.nodes),
                findings,
                show_all=obj["verbose"] > 0,
                color=color,
                more="ncdiag -v env",
                note=told,
            ),
            output,
        )
    return code


def _process(options: dict[str, Any]) -> str:
    """`the environment of process 4711 (python3)`."""
    pid = options["pid"]
    if options["nodes"] != "local":
        return f"the environment of process {pid} there"
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return f"the environment of process {pid} ({file.read().strip()})"
    except OSError:
        return f"the environment of process {pid}"


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


class File(NamedTuple):
    """What is written in a file."""

    values: dict[str, Values]
    unread: list[Finding]
    """What it holds besides, and nobody knows the meaning of."""


def _read(file: str) -> File:
    """Raises click.UsageError."""
    from ncdiag.nccl import written

    text = _text(file)
    try:
        values: dict[str, Values] = {**written.read(text, file)}
    except written.NotUnderstood as error:
        raise click.UsageError(f"{file}: {error}") from None
    strange = written.not_understood(text, file)
    if not strange:
        return File(values, [])
    number, why = strange[0]
    shown = "stdin" if file == "-" else file
    told = f"line {number} of {shown} is" if len(strange) == 1 else f"{len(strange)} lines of {shown} are"
    first = why if len(strange) == 1 else f"the first is line {number}, {why}"
    return File(
        values,
        [
            unknown(
                f"{told} not understood, so that what is set there is not judged: {redact.text(first)}",
                source=shown,
                remedy=f"write NAME=VALUE in lines of at most {written.MAX_LINE >> 10} KiB, or take the line out",
            )
        ],
    )


def _text(file: str) -> str:
    """Raises click.UsageError."""
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with open(file, "rb") as source:
                raw = source.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise click.UsageError(f"{file}: larger than {MAX_FILE_BYTES >> 20} MiB, which no file of settings is")
    text = raw.decode("utf-8-sig", "surrogateescape")
    strange = sum(not (character.isprintable() or character.isspace() or character == "\x1b") for character in text)
    if b"\0" in raw or strange > MAX_STRANGE * len(text):
        raise click.UsageError(f"{file}: not text; the environment of a process is read with --pid")
    return raw.decode("utf-8-sig", "backslashreplace")


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
