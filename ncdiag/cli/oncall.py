"""`ncdiag oncall`."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import click

from ncdiag.cli.types import InputFile
from ncdiag.exits import Exit
from ncdiag.nodeset import counted
from ncdiag.oncall.server import Oncall
from ncdiag.oncall.settings import SettingsError, read


@click.command()
@click.option(
    "--config",
    type=InputFile(path_type=Path),
    required=True,
    metavar="FILE",
    help="The settings (YAML).",
)
@click.option("--check", is_flag=True, help="Read the settings, say what is wrong with them, and end.")
def command(config: Path, check: bool) -> int:
    """Walk a playbook when Alertmanager reports an alert; always a dry run.

    Receives webhooks at /alerts, shows what was run at /runs, and hands each record on. Ends on SIGTERM or Ctrl-C.
    """
    try:
        settings = read(config)
        if check:
            click.echo(f"{config}: nothing is wrong, {counted(len(settings.rules), 'rule')}", err=True)
            return Exit.OK
        server = Oncall(settings, lambda line: print(line, file=sys.stderr, flush=True))
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.UsageError(f"cannot listen on {settings.listen} port {settings.port}: {error.strerror}") from None
    signal.signal(signal.SIGTERM, lambda number, frame: threading.Thread(target=server.shutdown).start())
    server.workers.start()
    server.log(f"listening on {server.server_address[0]!s} port {server.server_address[1]}")
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
        server.workers.stop()
    return Exit.OK
