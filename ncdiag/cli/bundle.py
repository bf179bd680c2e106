"""`ncdiag bundle show`."""

from __future__ import annotations

from typing import Any

import click

from ncdiag.cli import Group
from ncdiag.cli.options import FORMATS, output_options
from ncdiag.cli.types import InputFile
from ncdiag.nodeset import counted


@click.group(cls=Group)
def command() -> None:
    """Look into a bundle that hang-dump saved."""


@command.command()
@click.argument("path", type=InputFile(exists=True, folders=True))
@output_options(*FORMATS)
@click.pass_obj
def show(obj: dict[str, Any], path: str, format_: str, output: str | None) -> int:
    """What a bundle holds, and the verdict that its content leads to here and now.

    Exit code: as that of hang-dump.
    """
    from ncdiag import bundle
    from ncdiag.cli.hang_dump import conclude

    try:
        content = bundle.load(path)
    except bundle.BundleError as error:
        raise click.UsageError(str(error)) from None
    if format_ == "text" and not obj["quiet"]:
        meta = content.meta
        click.echo(
            f"{path}: dump of {counted(len(content.states), 'process')} on {meta.get('node')}, {meta.get('created')}, ncdiag {meta.get('version')}; "
            f"{counted(len(content.ras), 'RAS report')}, {counted(len(content.flight), 'flight-recorder dump')}, {counted(len(content.logs), 'log')}",
            err=True,
        )
    return conclude(obj, content, "hang-dump", format_, output)
