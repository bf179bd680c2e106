"""`ncdiag report`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ncdiag.cli.options import FORMATS, SHOWN_AGAIN, exit_code, fail_on_option, output_options, write_result
from ncdiag.cli.types import InputFile
from ncdiag.exits import Exit

if TYPE_CHECKING:
    from ncdiag.registry import ProbeSet
    from ncdiag.report.read import Saved
    from ncdiag.report.result import Result


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE|BUNDLE|-…", type=InputFile(folders=True, allow_dash=True)
)
@click.option(
    "--against",
    type=InputFile(folders=True),
    metavar="OLD",
    help="An older result, to say what is new, fixed, unchanged, and not judged again.",
)
@click.option(
    "--probes",
    "folders",
    multiple=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="A folder with probes of your own, for snapshots.",
)
@fail_on_option
@output_options(*FORMATS)
@click.option(
    "--all", "show_all", is_flag=True, help="Text: show what is ok or does not apply, and every evidence line, too."
)
@click.pass_obj
def command(
    obj: dict[str, Any],
    paths: tuple[str, ...],
    against: str | None,
    folders: tuple[str, ...],
    fail_on: str,
    format_: str,
    output: str | None,
    show_all: bool,
) -> int:
    """Show saved results again, in any format: JSON of any command, snapshots and captured trees (judged now), bundles.

    Several make one report; bundles or snapshots of several nodes are judged together. Exit code: that of the results, the gravest first.
    """
    from ncdiag.cli.gather import choose_probes
    from ncdiag.report import formats
    from ncdiag.report.compare import compare

    load = functools.cache(lambda: choose_probes(folders, (), ())[0])
    saved = _read(paths, load)
    results = [one.result for one in saved]
    comparison = None
    if against is not None:
        comparison = compare([one.result for one in _read([against], load)], results, against)
    code = _code(results, fail_on)
    if format_ == "json":
        write_result(formats.as_json(saved, comparison, code), output, masked=True, look=SHOWN_AGAIN)
    elif format_ == "text":
        shown = formats.as_text(
            saved, comparison, show_all=show_all or obj["verbose"] > 0, color=None if output else obj["color"]
        )
        write_result(shown, output)
    else:
        look = "open it in a browser" if format_ == "html" else ""
        write_result(formats.written(results, format_, comparison, fail_on), output, masked=True, look=look)
    return code


def _read(paths: Sequence[str], load: Callable[[], ProbeSet]) -> list[Saved]:
    from ncdiag.report.read import ReadError, read

    try:
        return read(paths, load)
    except ReadError as error:
        raise click.UsageError(str(error)) from None


def _code(results: Sequence[Result], fail_on: str) -> int:
    """The gravest: 1 before 3 before 0."""
    codes = [exit_code(result.findings, fail_on) if result.findings else result.code for result in results]
    return next((code for code in (Exit.FINDING, Exit.INCOMPLETE) if code in codes), max(codes, default=0))
