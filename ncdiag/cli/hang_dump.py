"""`ncdiag hang-dump`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ncdiag.cli.options import FORMATS, SHOWN_AGAIN, output_options, tell_saved, write_other, write_result
from ncdiag.cli.types import OutputFile, Seconds
from ncdiag.exits import Exit, of_cause

if TYPE_CHECKING:
    from ncdiag.hang.content import DumpContent
    from ncdiag.model import Cause


HOW_TO_FIND = "find one: pgrep -af 'vllm|torchrun|ray::'"


class Pid(click.ParamType):
    """A process number; what is none is told how to find one."""

    name = "pid"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value).isdecimal() and int(value) > 0:
            return int(value)
        raise click.UsageError(f"{str(value)[:80]!r} is no pid; {HOW_TO_FIND}", ctx)


@click.command()
@click.argument("pids", type=Pid(), nargs=-1, required=True, metavar="PID...")
@output_options(*FORMATS)
@click.option(
    "--bundle",
    type=OutputFile(folders=True),
    metavar="PATH",
    help="Save everything, redacted: a folder, or a file ending in .tar.gz or .tar.zst.",
)
@click.option(
    "--window",
    "window_s",
    type=Seconds(0.2, 60),
    default=3.0,
    show_default=True,
    help="Seconds over which progress is measured.",
)
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(1, 600),
    default=30.0,
    show_default=True,
    help="Seconds after which no further stack is read.",
)
@click.option(
    "--native",
    type=click.Choice(["auto", "all", "none"]),
    default="auto",
    show_default=True,
    help="Native frames: of the odd ones and two of every group of equal stacks, of all, of none.",
)
@click.option(
    "--nonblocking",
    is_flag=True,
    help="Never pause a process, not for a millisecond; no native frames, stacks may be inexact.",
)
@click.option(
    "--locals",
    "variables",
    is_flag=True,
    help="Also read rank, world size, store host and port from local variables; no others.",
)
@click.option(
    "--ask-recorder",
    is_flag=True,
    help="Where a flight-recorder pipe was set up, ask the processes to write their dump.",
)
@click.option("--no-ras", is_flag=True, help="Do not ask NCCL RAS.")
@click.pass_obj
def command(
    obj: dict[str, Any], pids: tuple[int, ...], format_: str, output: str | None, bundle: str | None, **options: Any
) -> int:
    """Which rank holds up the others, and why. PID: any process of the engine.

    Looks at the whole family of processes of PID on this machine: stacks, sockets, kernel state, progress over a few seconds, logs, NCCL RAS,
    flight recorder. Only reads, and whom it read runs on. Who sleeps is not woken. Who runs is paused for milliseconds, or for up to a second
    where native frames are needed (--native none: not that).

    Exit code: 0 nothing hangs, 1 somebody holds up the others or failed (surely or likely), 3 no more than a possibility, or
    what could be read does not tell.
    """
    from ncdiag.hang.dump import Request, dump
    from ncdiag.processes.family import FamilyError

    try:
        content = dump(Request(pids, **options))
    except FamilyError as error:
        known = "give one of these" in str(error) or "give that one" in str(error)
        raise click.UsageError(str(error) if known else f"{error}; {HOW_TO_FIND}") from None
    return conclude(obj, content, "hang-dump", format_, output, bundle=bundle)


def conclude(
    obj: dict[str, Any],
    content: DumpContent,
    name: str,
    format_: str,
    output: str | None,
    *,
    bundle: str | None = None,
    logs: Sequence[Cause] = (),
    verbose: bool = False,
) -> int:
    """Verdict of what was read, written, and saved where asked for."""
    from ncdiag.report.hang import verdict_as_json, verdict_as_text
    from ncdiag.report.run import of_bundle

    verdict, notes = content.verdict(logs), content.not_read()
    code = (
        Exit.INCOMPLETE
        if verdict.kind == "unknown"
        else of_cause(verdict.causes[0].cause, verdict.causes[0].confidence)
    )
    if bundle:
        _save(bundle, content)
    if format_ == "json":
        write_result(verdict_as_json(name, verdict, notes, code, of_bundle(content.meta)), output, look=SHOWN_AGAIN)
    elif format_ != "text":
        from ncdiag.report.result import Result

        write_other(Result.of_verdict(name, verdict, notes, code, of_bundle(content.meta)), format_, output)
    else:
        write_result(
            verdict_as_text(
                verdict, notes, color=None if output else obj["color"], verbose=verbose or obj["verbose"] > 0
            ),
            output,
        )
    if bundle:
        tell_saved(bundle, "judge it elsewhere with: ncdiag diagnose {}")
    return code


def _save(path: str, content: DumpContent) -> None:
    from ncdiag import bundle

    try:
        bundle.save(path, content)
    except bundle.BundleError as error:
        raise click.UsageError(str(error)) from None
