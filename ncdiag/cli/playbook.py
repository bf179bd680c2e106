"""`ncdiag playbook`."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncdiag import redact
from ncdiag.cli import Group
from ncdiag.cli.options import read_env_file, write_result
from ncdiag.cli.types import InputFile, OutputFile, Seconds
from ncdiag.exits import Exit
from ncdiag.model import Plan
from ncdiag.nodeset import counted
from ncdiag.playbook.loader import load, names
from ncdiag.playbook.marks import PlaybookError
from ncdiag.playbook.schema import RISKS, AskStep, Playbook, RemedyStep
from ncdiag.playbook.words import HANG, in_words
from ncdiag.report.console import plain
from ncdiag.report.wrapped import markdown, wrapped
from ncdiag.suggest import did_you_mean

if TYPE_CHECKING:
    from ncdiag.playbook.findings import Found
    from ncdiag.playbook.record import Record

own_folder = click.option(
    "--playbooks",
    "folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="A folder with playbooks of your own; they go before those of the same name.",
)


@click.group(cls=Group)
def command() -> None:
    """The runbook: one playbook a cause. Looks by itself, changes nothing unless --apply is given and confirmed."""


@command.command("list")
@own_folder
def list_command(folder: Path | None) -> int:
    """Every playbook with its title."""
    known = names(folder)
    indent = 1 + max(map(len, known))
    for name in known:
        line = f"{name:{indent}}{_load(name, folder).title}"
        click.echo(wrapped(line, " " * indent))
    return Exit.OK


@command.command("show")
@click.argument("name")
@own_folder
def show_command(name: str, folder: Path | None) -> int:
    """One playbook in words: what it looks like, how it is known, what to do."""
    for line in in_words(_load(name, folder)).splitlines():
        step = line.startswith("  ") and not line.startswith("  - ")
        click.echo(wrapped(line, " " * (HANG if step else 4)))
    return Exit.OK


@command.command("lint")
@click.argument("chosen", nargs=-1, metavar="[NAME]...")
@own_folder
@click.option(
    "--probes",
    "folders",
    multiple=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="A folder with probes of your own.",
)
def lint_command(chosen: tuple[str, ...], folder: Path | None, folders: tuple[str, ...]) -> int:
    """Check playbooks: fields, links, reachable steps, probes, read-only commands."""
    from ncdiag.playbook.lint import lint
    from ncdiag.registry import load as load_probes

    probes = load_probes(folders)
    known = names(folder)
    strange = next((name for name in chosen if name not in known), None)
    if strange is not None:
        raise click.UsageError(f"there is no playbook {strange!r}{did_you_mean(strange, known)}")
    todo = chosen or tuple(known)
    problems = [problem for name in todo for problem in lint(name, probes, folder)]
    for problem in problems:
        click.echo(problem)
    click.echo(f"{counted(len(todo), 'playbook')}, {counted(len(problems), 'problem')}", err=True)
    return Exit.FINDING if problems else Exit.OK


@command.command("run")
@click.argument("name", required=False)
@click.option(
    "--from",
    "findings",
    type=InputFile(exists=True, path_type=Path),
    metavar="FINDINGS.json",
    help="The JSON of preflight, diagnose, hang-dump or bringup: its first cause is taken, the others are named.",
)
@own_folder
@click.option("--nodes", default="local", show_default=True, metavar="WHERE", help="Which nodes, as for preflight.")
@click.option("--ssh-user", metavar="USER", help="Log in as this user.")
@click.option("--ssh-config", type=InputFile(exists=True), metavar="FILE", help="OpenSSH's configuration to use.")
@click.option(
    "--probes",
    "folders",
    multiple=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="A folder with probes of your own.",
)
@click.option("--pid", type=int, metavar="PID", help="A running process of the engine.")
@click.option("--python", metavar="PATH", help="The engine's interpreter.")
@click.option("--model", metavar="PATH", help="The model as the engine will be given it.")
@click.option("--tp", type=click.IntRange(min=1), help="Tensor-parallel size that is meant to run.")
@click.option("--pp", type=click.IntRange(min=1), help="Pipeline-parallel size.")
@click.option(
    "--env-file",
    type=InputFile(path_type=Path),
    help="NAME=VALUE lines the engine is started with; remedies edit it.",
)
@click.option("--apply", is_flag=True, help="Allow remedies. Each is shown with its undo and must be confirmed.")
@click.option("--yes", is_flag=True, help="With --apply: no confirmation up to --max-risk.")
@click.option(
    "--max-risk", type=click.Choice(RISKS), default="low", show_default=True, help="The highest risk that --yes covers."
)
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value a remedy needs: a variable's, SHM_SIZE, PID, and what else stands in it in capitals.",
)
@click.option(
    "--answer", "answers", multiple=True, metavar="STEP=ANSWER", help="The answer to a question, given beforehand."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["markdown", "json"]),
    default="markdown",
    show_default=True,
    help="The record's form.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    help="Write the record to this file (mode 0600) instead of stdout.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=1),
    default=60.0,
    show_default=True,
    help="Seconds a node may take for a probe.",
)
@click.option(
    "--limit",
    "limit_s",
    type=Seconds(min=1),
    default=1800.0,
    show_default=True,
    help="Seconds the whole walk may take.",
)
@click.pass_obj
def run_command(
    obj: dict[str, Any],
    name: str | None,
    findings: Path | None,
    folder: Path | None,
    nodes: str,
    format_: str,
    output: str | None,
    **options: Any,
) -> int:
    """Walk a playbook and write a record. A dry run unless --apply is given.

    Exit code: 0 nothing to do or repaired, 1 something is to be done or a remedy failed, 3 something could not be
    looked at, nobody answered, or (with --from) other causes of the result were not walked.
    """
    from ncdiag.fleet import FleetError
    from ncdiag.playbook.actions import Inputs
    from ncdiag.playbook.lint import proved
    from ncdiag.playbook.record import as_markdown
    from ncdiag.playbook.runner import Nobody, Walk
    from ncdiag.playbook.targets import Target

    told = click.get_current_context().get_parameter_source("nodes") is not click.core.ParameterSource.DEFAULT
    ranked = _chosen(name, findings, anywhere=told)
    name = ranked[0][0]
    env_file: Path | None = options["env_file"]
    target = Target(
        nodes,
        options["folders"],
        options["python"],
        options["pid"],
        lambda: read_env_file(str(env_file) if env_file else None),
        Plan(tp=options["tp"], pp=options["pp"], model=options["model"]),
        options["timeout_s"],
        options["ssh_user"],
        options["ssh_config"],
    )
    answers, values = _pairs(options["answers"], "--answer"), _pairs(options["values"], "--value")
    terminal = sys.stdin.isatty() and sys.stderr.isatty()
    walk = Walk(
        target,
        lambda other: proved(other, folder),
        Terminal(answers) if terminal else Nobody(answers),
        options["apply"],
        options["max_risk"] if options["yes"] else None,
        Inputs(env_file, values),
        options["limit_s"],
        _progress(obj["quiet"]),
        _known(options["pid"], values),
    )
    try:
        record = walk.run(proved(name, folder))
    except (FleetError, PlaybookError) as error:
        raise click.UsageError(str(error)) from None
    record.others = _others(ranked, record, told)
    if format_ == "json":
        text = json.dumps(redact.data(record.as_dict()), indent=1)
    else:
        text = as_markdown(record) if output not in (None, "-") else markdown(as_markdown(record))
    write_result(text, output)
    if record.others and not obj["quiet"]:
        click.echo("\n  ".join([f"{len(record.others)} more, not walked:", *record.others]), err=True)
    return record.exit


class Terminal:
    """A person at a terminal; what was given beforehand is not asked."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    def ask(self, step: AskStep) -> str | None:
        """Asks on stderr; an empty line means that the person does not know."""
        if step.id in self._answers:
            return self._answers[step.id]
        choices = step.choices or {"yes": "yes", "no": "no"}
        click.echo(f"\n{step.ask}", err=True)
        if step.choices:
            for answer, wording in choices.items():
                click.echo(f"  {answer:24} {wording}", err=True)
        while True:
            words = f"[{'/'.join(choices)}, empty: do not know]"
            answer = str(click.prompt(words, default="", show_default=False, err=True)).strip()
            if answer in choices or not answer:
                return answer or None

    def confirm(self, step: RemedyStep, prepared: Any) -> bool:
        """The undo is said before the change."""
        click.echo(f"\n{step.remedy}\nundo:   {prepared.undo}\nrisk:   {step.risk}", err=True)
        click.echo(f"change: {prepared.preview}", err=True)
        return click.confirm("Do it?", default=False, err=True)


def _progress(quiet: bool) -> Callable[[str], None]:
    return (lambda line: None) if quiet else (lambda line: click.echo(_headline(line), err=True))


def _headline(line: str) -> str:
    """A step's first line; what it would change stands in the record."""
    first, *more = line.splitlines()
    return wrapped(f"{first.removesuffix(':')} what the record shows" if more and first.endswith(":") else first, "  ")


def _load(name: str, folder: Path | None) -> Playbook:
    try:
        return load(name, folder)
    except PlaybookError as error:
        raise click.UsageError(str(error)) from None


def _pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {item}: not NAME=VALUE")
        pairs[key] = value
    return pairs


def _known(pid: int | None, values: dict[str, str]) -> dict[str, str]:
    """The words that remedies are shown with a value for; names of variables stand in them as such."""
    given = {} if pid is None else {"PID": str(pid)}
    return {**given, **{name: value for name, value in values.items() if "_" not in name}}


def _chosen(name: str | None, findings: Path | None, anywhere: bool) -> list[Found]:
    """What to walk, the first first: as named, or all the causes of a result. Raises click.UsageError.

    A cause of another machine is not looked for on this one by accident: that walk would end `clear`. `anywhere`: the
    person named the nodes.
    """
    from ncdiag.playbook.findings import ranked_causes

    if (name is None) == (findings is None):
        raise click.UsageError("give either the NAME of a playbook or --from FINDINGS.json; see: ncdiag playbook list")
    if name is not None:
        return [(name, None)]
    assert findings is not None
    try:
        ranked = ranked_causes(findings)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    (cause, node), here = ranked[0], socket.gethostname()
    if node is not None and node != here and not anywhere:
        raise click.UsageError(
            f"{findings}: {cause} was found on {plain(node)}, and this is {here}: give --nodes ssh:{plain(node)}, "
            "or --nodes local to look here all the same"
        )
    click.echo(f"{findings}: {cause}", err=True)
    return ranked


def _others(ranked: list[Found], record: Record, told: bool) -> list[str]:
    """The commands for what is ranked and was not walked, with the options of this call that are of use to them."""
    from ncdiag.playbook.findings import commands_for

    here, walked = socket.gethostname(), {record.playbook, *(step.playbook for step in record.steps)}
    left = [(cause, node) for cause, node in ranked if cause not in walked or not (told or node in (None, here))]
    given = click.get_current_context().params
    kept = [("--nodes", "nodes")] * told + [("--playbooks", "folder"), ("--env-file", "env_file")]
    kept += [("--ssh-user", "ssh_user"), ("--ssh-config", "ssh_config")]
    options = [word for option, name in kept if given[name] for word in (option, str(given[name]))]
    return commands_for(left, here, options, told)
