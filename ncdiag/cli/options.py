"""Options that several commands share, and the way their results leave: format, file, exit code."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ncdiag import redact
from ncdiag.cli.streams import as_utf8
from ncdiag.cli.types import InputFile, OutputFile, Seconds
from ncdiag.exits import Exit
from ncdiag.files import open_regular
from ncdiag.model import Finding, Plan, Status

if TYPE_CHECKING:
    from ncdiag.report.result import Result

FORMATS = ("text", "json", "html", "junit", "prometheus")
"""Of results that people and CI look at; `write_other` writes the last three."""

SHOWN_AGAIN = "show it again with: ncdiag report {}"
"""How JSON of findings, causes and figures is looked at, for `write_result`."""

F = TypeVar("F", bound=Callable[..., Any])


def _stack(options: Sequence[Callable[[Any], Any]]) -> Callable[[F], F]:
    def apply(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def output_options(*formats: str) -> Callable[[F], F]:
    """`--format` with the given choices (the first is the default) and `-o`."""
    return _stack(
        [
            click.option(
                "--format",
                "format_",
                type=click.Choice(formats),
                default=formats[0],
                show_default=True,
                help="How the result is written.",
            ),
            click.option(
                "-o",
                "--output",
                type=OutputFile(),
                help="Write the result to this file (mode 0600) instead of stdout.",
            ),
        ]
    )


_WHERE = [
    click.option(
        "--nodes",
        default="local",
        show_default=True,
        metavar="WHERE",
        help="Which nodes: local, ssh:NODESET (as gpu[01-16]!gpu03,login), ssh:@HOSTFILE, ray, ray:ADDRESS, slurm (this allocation), "
        "slurm:JOBID, k8s:NAMESPACE/SELECTOR, file:SNAPSHOT or file:TREE.",
    ),
    click.option("--ssh-user", metavar="USER", help="Log in as this user; default: as OpenSSH's configuration says."),
    click.option(
        "--ssh-config",
        type=InputFile(exists=True),
        help="A configuration of OpenSSH other than your own (jump hosts, keys, names).",
    ),
]
_CHOICE = [
    click.option("--only", multiple=True, metavar="PROBE", help="Run only this probe. May be given more than once."),
    click.option("--skip", multiple=True, metavar="PROBE", help="Leave this probe out. May be given more than once."),
]
_ENGINE = [
    click.option(
        "--probes",
        "folders",
        multiple=True,
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="A folder with probes of your own.",
    ),
    click.option(
        "--pid",
        type=int,
        metavar="PID",
        help="A running process of the engine: its environment and libraries are read.",
    ),
    click.option("--python", metavar="PATH", help="The engine's interpreter, when it is not this one and not running."),
    click.option("--env-file", type=InputFile(), help="NAME=VALUE lines that the engine will be started with."),
    click.option(
        "--timeout",
        "timeout_s",
        type=Seconds(min=1),
        default=60.0,
        show_default=True,
        help="Seconds that one node may take. 64 nodes are asked at a time (NCDIAG_FANOUT), and more while these are silent; "
        "all together take at most this and 5 s for every 64.",
    ),
]

node_options = _stack([*_WHERE, *_CHOICE, *_ENGINE])

reached_options = _stack([*_WHERE, *_ENGINE])
"""Where no probes are chosen."""

plan_options = _stack(
    [
        click.option(
            "--tp", type=click.IntRange(min=1), help="Tensor-parallel size of the engine that is meant to run."
        ),
        click.option("--pp", type=click.IntRange(min=1), help="Pipeline-parallel size."),
        click.option("--dp", type=click.IntRange(min=1), help="Data-parallel size."),
        click.option("--model", metavar="PATH", help="The model as the engine will be given it."),
        click.option(
            "--port",
            "ports",
            type=click.IntRange(1, 65535),
            multiple=True,
            help="A TCP port that the engine or the store will want.",
        ),
        click.option("--nccl-version", metavar="X.Y.Z", help="Judge by this NCCL where the library cannot be found."),
    ]
)

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["warn", "fail"]),
    default="fail",
    show_default=True,
    help="From which status on the exit code is 1.",
)


def plan_of(values: dict[str, Any]) -> Plan:
    """Takes the plan's options out of a command's keyword arguments."""
    return Plan(
        tp=values.pop("tp"),
        pp=values.pop("pp"),
        dp=values.pop("dp"),
        model=values.pop("model"),
        ports=tuple(values.pop("ports")),
        nccl_version=values.pop("nccl_version"),
    )


def read_env_file(path: str | None) -> dict[str, str]:
    """NAME=VALUE lines, `#` comments and `export` allowed. Raises click.UsageError with file and line."""
    if path is None:
        return {}
    variables: dict[str, str] = {}
    try:
        with open_regular(path) as file:
            lines = file.read(1 << 20).decode("utf-8", "backslashreplace").splitlines()
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        line = line.strip().removeprefix("export ").strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.replace("_", "a").isalnum():
            raise click.UsageError(f"{path}:{number}: not NAME=VALUE")
        variables[name] = value.strip().strip("\"'")
    return variables


def write_result(text: str, output: str | None, *, masked: bool = False, look: str = "") -> None:
    """To stdout (None or `-`), or to a file of mode 0600, which is told with `look`, as `tell_saved` does.

    Secrets that got this far are masked, unless `masked` says that it is done (`redact.data`).
    """
    text = text if masked else redact.text(text)
    text = text if text.endswith("\n") else text + "\n"
    if output in (None, "-"):
        sys.stdout.write(text)
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from None
    tell_saved(output, look)


def tell_saved(path: str, look: str = "") -> None:
    """On stderr, unless `ncdiag -q`: what was written, how large it is, and how it is looked at (`{}` in `look` is the path)."""
    context = click.get_current_context(silent=True)
    if context is not None and context.obj and context.obj["quiet"]:
        return
    told = os.stat(path)
    size = f" ({told.st_size:,} bytes)" if stat.S_ISREG(told.st_mode) else ""
    how = f"; {look.format(shlex.quote(path))}" if look else ""
    click.echo(f"saved {path}{size}{how}", err=True)


def write_other(result: Result, format_: str, output: str | None, fail_on: str = "fail") -> None:
    """HTML, JUnit or Prometheus; these mask secrets by themselves."""
    from ncdiag.report.formats import written

    look = "open it in a browser" if format_ == "html" else ""
    if output in (None, "-"):
        as_utf8()
    write_result(written([result], format_, fail_on=fail_on), output, masked=True, look=look)


def exit_code(findings: Sequence[Finding], fail_on: str) -> Exit:
    """1 for a finding at or above `fail_on`, else 3 for an `unknown`, else 0."""
    limit = Status(fail_on).severity
    if any(finding.status.severity >= limit for finding in findings):
        return Exit.FINDING
    if any(finding.status is Status.UNKNOWN for finding in findings):
        return Exit.INCOMPLETE
    return Exit.OK
