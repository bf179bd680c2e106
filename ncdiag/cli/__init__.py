"""The command line: one file a command, imported only when that command runs, so that `--help` stays instant."""

from __future__ import annotations

import contextlib
import copy
import errno
import importlib
import io
import os
import sys
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from ncdiag import __version__
from ncdiag.cli.streams import prepare
from ncdiag.exits import Exit
from ncdiag.report.plain import plain
from ncdiag.report.wrapped import wrapped

COMMANDS = {
    "preflight": "Judge the nodes before an engine is started.",
    "bringup": "Start an engine under watch: where each rank stands, who holds up the others.",
    "hang-dump": "Which rank holds up the others, and why.",
    "diagnose": "Say what went wrong from logs, stacks and pasted output.",
    "log": "Show what NCCL logs say: communicators, stages, settings, transports, timings.",
    "topo": "Draw a machine's topology as NCCL sees it, from a dump or live.",
    "env": "Print the settings that these nodes need, each with its reason; or compare some with them.",
    "plan": "Does a model fit, on how many GPUs, and should it be several nodes at all?",
    "reach": "Test who reaches whom on the network that the engine will use.",
    "bandwidth": "Measure all-reduce over the nodes, say what it should be, and who is slow.",
    "report": "Show saved results again as HTML, JUnit, Prometheus, text or JSON; compare two.",
    "playbook": "Walk the runbook of a cause: look, ask, and repair what was confirmed.",
    "collect": "Save what the nodes tell, to judge or mail it later.",
    "bundle": "Look into what hang-dump saved.",
    "k8s": "Check Kubernetes manifests of multi-node engines, or write a skeleton.",
    "metrics": "Series for Prometheus, alert rules, a dashboard for Grafana.",
    "oncall": "Walk playbooks when alerts fire (Alertmanager webhook).",
    "drill": "Training: a small real cluster on this machine is broken; find the cause.",
}
"""Command -> what it does, in one line. The code is `command` in ncdiag/cli/<name with underscores>.py."""


class Group(click.Group):
    """A group that says what a mistyped command was meant to be."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from ncdiag.suggest import did_you_mean

            known = self.list_commands(ctx)
            near = did_you_mean(args[0], known) or f"; there are: {', '.join(known)}"
            raise click.UsageError(f"No such command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command with the whole first sentence of its help, wrapped and never cut."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=500)) for name, one in found if one is not None])


class LazyGroup(Group):
    """A group that knows the names of its commands, and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module("ncdiag.cli." + name.replace("-", "_")).command
        _share_options(command)
        _name_variables(command, name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _name_variables(command: click.Command, path: str) -> None:
    """Gives every option the variable that its long name says: `preflight --nodes` is NCDIAG_PREFLIGHT_NODES; and a whole number's value the name N."""
    for option in command.params:
        if isinstance(option, click.Option) and isinstance(option.type, click.IntRange) and option.metavar is None:
            option.metavar = "N"
        if isinstance(option, click.Option) and option.envvar is None:
            option.envvar = f"NCDIAG_{path}_{max(option.opts, key=len).lstrip('-')}".upper().replace("-", "_")
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            _name_variables(inner, f"{path}_{name}")


def _share_options(command: click.Command) -> None:
    """The options of `ncdiag` itself are understood behind the command, too: `ncdiag diagnose -v FILE`."""
    if not any(option.name in _SHARED for option in command.params):
        command.params.extend(map(_again, (option for option in cli.params if option.name in _SHARED)))
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _share_options(inner)


def _again(option: click.Parameter) -> click.Parameter:
    """The same option for a command; its help stands in that of `ncdiag`."""
    same = copy.copy(option)
    if isinstance(same, click.Option):
        same.hidden = True
    return same


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """What was said last holds; every `-v` counts, wherever it stands."""
    kept = ctx.ensure_object(dict)
    if option.name not in kept:
        kept[option.name] = value
    elif ctx.get_parameter_source(option.name or "") is not ParameterSource.DEFAULT:
        kept[option.name] = kept[option.name] + value if option.name == "verbose" else value


_SHARED = ("verbose", "quiet", "color")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "NCDIAG", "max_content_width": 100},
)
@click.version_option(__version__, prog_name="ncdiag")
@click.option(
    "-v",
    "--verbose",
    count=True,
    expose_value=False,
    callback=_keep,
    help="Say more; with an error, show where it came from.",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    expose_value=False,
    callback=_keep,
    help="No progress, no notes on the way: the result only.",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_keep,
    help="NO_COLOR is honoured too.",
)
def cli() -> None:
    """Says which node, which device, which setting keeps a sharded engine from coming up, and what to do.

    Every option can be set by an environment variable: NCDIAG_PREFLIGHT_NODES for `preflight --nodes`. -v, -q and --color may
    stand after the command, too.
    """


def main() -> NoReturn:
    """Runs the command line; every way out is one of the documented exit codes."""
    prepare()
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Abort:
        _end(Exit.INTERRUPTED)
    except KeyboardInterrupt:
        _end(Exit.INTERRUPTED)
    except click.exceptions.Exit as ended:
        _end(ended.exit_code)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(file=shown)
        _say(shown.getvalue().rstrip("\n"))
        _end(Exit.USAGE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _end(Exit.OK)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            _broke(error)
        _say(f"Error: no room for what is written: {error}")
        _end(Exit.USAGE)
    except Exception as error:
        _broke(error)
    _end(code if isinstance(code, int) else Exit.OK)


def _say(text: str) -> None:
    """To stderr, if that takes it, without what a file's name could do to a terminal; there lines are broken where it ends."""
    lines = plain(text).split("\n")
    with contextlib.suppress(OSError):  # nobody can be told on a full disk
        shown = [wrapped(line, "  ") for line in lines] if sys.stderr.isatty() else lines
        print("\n".join(shown), file=sys.stderr, flush=True)


def _broke(error: Exception) -> NoReturn:
    if any(argument.startswith("-v") or argument == "--verbose" for argument in sys.argv[1:]) or os.environ.get(
        "NCDIAG_VERBOSE"
    ):
        import traceback

        traceback.print_exc()
    _say(f"ncdiag broke: {type(error).__name__}: {error} (ncdiag -v … shows where)")
    _end(Exit.BROKEN)


def _end(code: int) -> NoReturn:
    """Ends at once: a daemon thread stuck in the kernel must not keep the process alive."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(int(code))
