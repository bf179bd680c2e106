"""`ncdiag diagnose`."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, Any

import click

from ncdiag.cli.options import FORMATS, SHOWN_AGAIN, output_options, write_other, write_result
from ncdiag.exits import of_cause

if TYPE_CHECKING:
    from ncdiag.hang.content import DumpContent


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR|-…")
@output_options(*FORMATS)
@click.option("--all", "show_all", is_flag=True, help="Show every evidence line.")
@click.pass_obj
def command(obj: dict[str, Any], paths: tuple[str, ...], format_: str, output: str | None, show_all: bool) -> int:
    """Say what went wrong from what is left: logs, stacks, sockets, pasted command output, in any mix, compressed or not.

    Bundles of hang-dump, of one node or of several, too. Out comes one ranked list of causes with the lines they rest on.
    Exit code: 0 healthy or only slow, 1 a sure or likely cause, 3 no more than a possible one.
    """
    from ncdiag.logs.diagnose import communicators, diagnose, ranks
    from ncdiag.nccl.log import without_collection

    dumps, paths = _bundles(paths)
    if dumps:
        from ncdiag.cli.hang_dump import conclude
        from ncdiag.hang.content import DumpContent

        return conclude(
            obj,
            DumpContent.together(dumps),
            "diagnose",
            format_,
            output,
            logs=diagnose(paths).verdict.causes if paths else (),
            verbose=show_all,
        )
    with without_collection():
        found = diagnose(paths)
        gc.freeze()  # all of it is needed until the end: it is not to be walked over
    causes, steps = found.verdict.causes, found.verdict.next
    if not found.sources:
        raise click.UsageError("; ".join(found.notes) or "nothing to read")
    code = int(of_cause(causes[0].cause, causes[0].confidence))
    if format_ == "json":
        from ncdiag.report.causes import causes_as_json

        write_result(
            causes_as_json(
                "diagnose",
                causes,
                ranks=ranks(found.nccl),
                communicators=communicators(found.nccl),
                next_=steps,
                notes=found.notes,
                code=code,
            ),
            output,
            look=SHOWN_AGAIN,
        )
    elif format_ != "text":
        from ncdiag.report.saved import of_causes

        write_other(
            of_causes("diagnose", causes, ranks(found.nccl), communicators(found.nccl), steps, found.notes, code),
            format_,
            output,
        )
    else:
        from ncdiag.report.causes import causes_as_text

        write_result(
            causes_as_text(
                causes,
                next_=steps,
                notes=found.notes,
                sources=found.sources,
                show_all=show_all or obj["verbose"] > 0,
                color=None if output else obj["color"],
            ),
            output,
        )
    return code


def _bundles(paths: tuple[str, ...]) -> tuple[list[DumpContent], tuple[str, ...]]:
    """The bundles of hang-dump among `paths`, of one node or of several, and the other paths."""
    dumps, others = [], []
    for path in paths:
        if not _may_be_bundle(path):
            others.append(path)
            continue
        from ncdiag import bundle

        try:
            content = bundle.find(path)
        except bundle.BundleError as error:
            if not path.endswith(".zst"):
                raise click.UsageError(str(error)) from None
            content = None  # a compressed log, perhaps: reading it tells what is wrong with it
        if content is not None:
            dumps.append(content)
        else:
            others.append(path)
    return dumps, tuple(others)


def _may_be_bundle(path: str) -> bool:
    """A folder, or a file that begins like an archive: looking for one in anything else may take forever."""
    from ncdiag.logs.archives import may_be_archive

    if os.path.isdir(path):
        return True
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return may_be_archive(file.read(512))
    except OSError:
        return False
