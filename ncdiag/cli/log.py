"""`ncdiag log`."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import click

from ncdiag.cli.options import output_options, write_result
from ncdiag.exits import Exit

if TYPE_CHECKING:
    from ncdiag.nccl.log_facts import NcclFacts


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR|-…")
@click.option("--ranks", "every_rank", is_flag=True, help="One line a rank, with its links.")
@output_options("text", "json")
@click.pass_obj
def command(obj: dict[str, Any], paths: tuple[str, ...], every_rank: bool, format_: str, output: str | None) -> int:
    """Show what NCCL logs say: communicators, stages, settings, transports, timings, errors.

    All files together are one job: the ranks of a communicator are found over files, also with one file a process
    (NCCL_DEBUG_FILE). `ncdiag diagnose` judges; this shows. Exit code: 0 all is initialised, 1 an error or a rank that holds up
    the others, 3 not enough here.
    """
    from ncdiag.logs.intake import Intake
    from ncdiag.logs.printed import printed
    from ncdiag.nccl.log import NcclLog, without_collection

    intake, parser = Intake(), NcclLog()
    with without_collection():
        for stream in intake.streams(paths):
            chunks, numbers = printed(stream)
            if numbers is not None:
                intake.notes.append(
                    f"{stream.name}: put in order as it was printed; its lines are counted in that order"
                )
            for chunk in chunks:
                parser.feed(stream.name, chunk)
            parser.end(stream.name)
        facts = parser.finish()
        gc.freeze()  # all of it is needed until the end: it is not to be walked over
    facts.notes[:0] = intake.notes
    if not facts.sources:
        raise click.UsageError("; ".join(intake.notes) or "nothing to read")
    if not facts.processes:
        names = " ".join(paths)
        facts.notes.append(
            "no line of NCCL is in what was given: start with NCCL_DEBUG=INFO; other logs are read by ncdiag diagnose "
            + names
        )
    code = exit_of(facts)
    if format_ == "json":
        import json

        from ncdiag import redact
        from ncdiag.model import SCHEMA
        from ncdiag.report.run import now

        head = {"schema": SCHEMA, "command": "log", "run": now().as_dict()}
        text = json.dumps(redact.data({**head, **facts.to_json(), "exit": int(code)}), indent=1)
    else:
        from ncdiag.report.nccl_log import log_as_text

        text = log_as_text(facts, color=None if output else obj["color"], every_rank=every_rank or obj["verbose"] > 0)
    write_result(text, output)
    return int(code)


def exit_of(facts: NcclFacts) -> Exit:
    """1 for an error or a named rank, 3 where no NCCL line or an unfinished communicator is, else 0."""
    from ncdiag.nccl.events import ends_a_rank

    if any(one.culprits for one in facts.communicators) or any(map(ends_a_rank, facts.events)):
        return Exit.FINDING
    stages = {rank.stage for one in facts.communicators for rank in one.ranks}
    return Exit.OK if stages and stages <= {"complete", "destroyed"} else Exit.INCOMPLETE
