"""`ncdiag bringup`."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from ncdiag.cli.options import FORMATS, SHOWN_AGAIN, output_options, write_other, write_result
from ncdiag.cli.types import InputFile, OutputFile, Seconds
from ncdiag.exits import of_outcome

if TYPE_CHECKING:
    from ncdiag.bringup.result import Result
    from ncdiag.bringup.session import Session


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--attach",
    type=click.IntRange(min=1),
    metavar="PID",
    help="Watch a start that runs already: any process of the engine. It is never ended.",
)
@click.option(
    "--ray",
    "in_ray",
    is_flag=False,
    flag_value="auto",
    default=None,
    metavar="[ADDRESS]",
    help="Watch the engine in this Ray cluster (default: the one of this node).",
)
@click.option(
    "--follow",
    multiple=True,
    metavar="FILE",
    help="A log to read as well, of another node or launcher. May be given more than once.",
)
@click.option(
    "--nodes",
    default="local",
    show_default=True,
    metavar="WHERE",
    help="Where else it has processes: ssh:NODESET or ssh:@HOSTFILE. Nodes of its Ray cluster are found by themselves.",
)
@click.option("--ssh-user", metavar="USER", help="Log in as this user.")
@click.option("--ssh-config", type=InputFile(exists=True), help="A configuration of OpenSSH other than your own.")
@click.option("--no-preflight", is_flag=True, help="Start without the probes that concern this command line.")
@click.option(
    "--python",
    type=InputFile(exists=True),
    metavar="FILE",
    help="The engine's interpreter, for the probes before the start; default: that of the command line.",
)
@click.option(
    "--stall-after",
    "stall_after_s",
    type=Seconds(min=1),
    default=60.0,
    show_default=True,
    help="Seconds in which no stage changes, nothing new is printed and nothing moves.",
)
@click.option(
    "--on-stall",
    type=click.Choice(["report", "bundle", "stop"]),
    default="report",
    show_default=True,
    help="Report and go on waiting; save a bundle as well; or end the command.",
)
@click.option(
    "--bundle",
    type=OutputFile(folders=True),
    metavar="PATH",
    help="Where --on-stall bundle saves; default: ncdiag-bringup-TIME.tar.gz here.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=1),
    help="Seconds since its start after which it must be up; else its verdict is given and it is ended.",
)
@click.option(
    "--hook",
    metavar="CMD",
    help="A shell command that gets the JSON on its stdin at each stall, when it is up, and when it failed.",
)
@click.option(
    "--ready-when",
    type=click.Choice(["completion", "health"]),
    default="completion",
    show_default=True,
    help="What says that a server is up: a small completion, or /health alone (embedding models have no completions).",
)
@click.option(
    "--then",
    type=click.Choice(["keep", "stop"]),
    default="keep",
    show_default=True,
    help="When it is up: stay with it until it ends, or end it.",
)
@click.option(
    "--quiet-child",
    type=OutputFile(),
    metavar="FILE",
    help="The command's output into this file instead of here.",
)
@click.option(
    "--timeline",
    type=OutputFile(),
    metavar="FILE",
    help="Save when each process was in which stage, as JSON.",
)
@output_options(*FORMATS)
@click.pass_obj
def command(obj: dict[str, Any], format_: str, output: str | None, **options: Any) -> int:
    """Start an engine under watch: where each rank stands, who holds up the others, and whether it answers.

    COMMAND is whatever starts it: vllm serve, torchrun, a shell script. Its output is passed on untouched; ncdiag speaks on stderr. Exit code: 0 it
    came up (or, as a job of ranks without a server, ended well), 1 it failed or was given up, 3 it ended with status 0 and nothing had come up,
    130 Ctrl-C. Whatever COMMAND started is ended with ncdiag; what runs already is left alone.
    """
    from ncdiag.bringup.session import Session, SessionError

    if format_ != "text" and not output and not options["quiet_child"] and options["command_line"]:
        raise click.UsageError(f"--format {format_} needs -o FILE or --quiet-child FILE: stdout belongs to the command")
    try:
        session = Session(color=obj["color"], quiet=obj["quiet"], **options)
    except SessionError as error:
        raise click.UsageError(str(error)) from None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: session.interrupt())
    try:
        with session:
            result = session.run()
            code = of_outcome(result.outcome)
            if format_ not in ("text", "json"):
                from ncdiag.report.saved import of_json

                write_other(of_json(session.as_json(result, code)), format_, output)
            elif output or format_ == "json":
                json_ = format_ == "json"
                text = session.as_json(result, code) if json_ else session.as_text(result, None)
                write_result(text, output, look=SHOWN_AGAIN if json_ else "")
            if format_ == "text" or output:
                _tell(session, result, obj)
            if result.outcome == "ready" and options["then"] == "keep" and session.owns:
                result = session.stay()
                code = of_outcome(result.outcome)
                if result.outcome not in ("finished", "interrupted"):
                    _tell(session, result, obj)
            return code
    except SessionError as error:
        raise click.UsageError(str(error)) from None


def _tell(session: Session, result: Result, obj: dict[str, Any]) -> None:
    colored = obj["color"] == "always" or (
        obj["color"] == "auto" and sys.stderr.isatty() and "NO_COLOR" not in os.environ
    )
    session.screen.close()
    session.screen.say("\n" + session.as_text(result, "always" if colored else "never"))
