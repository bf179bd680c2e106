"""`ncdiag collect`."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from ncdiag import redact
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import node_options, plan_of, plan_options, read_env_file, tell_saved, write_result
from ncdiag.cli.types import OutputFile
from ncdiag.exits import Exit

JUDGED = "judge it, here or elsewhere, with: ncdiag preflight --nodes file:{}"


@click.command()
@node_options
@plan_options
@click.option(
    "-o",
    "--output",
    type=OutputFile(folders=True),
    help="The snapshot (JSON) to write, stdout by default; with --record the folder or .tar.gz.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Write the files and answers themselves as a tree, not the facts read from them (this machine only).",
)
@click.pass_obj
def command(obj: dict[str, Any], output: str | None, record: bool, **options: Any) -> int:
    """Save what the nodes tell, with secrets masked; `ncdiag preflight --nodes file:…` judges it later, anywhere."""
    plan = plan_of(options)
    everything, chosen = choose_probes(options["folders"], options["only"], options["skip"])
    if record:
        return _record(everything.sources(chosen), options, plan.model, output)
    if output is None and sys.stdout.isatty():
        raise click.UsageError("a snapshot is long JSON: give -o FILE, or pipe it on")
    snapshot = gather(everything, chosen, plan, options, obj["quiet"])
    write_result(json.dumps(redact.data(snapshot.as_dict()), indent=1), output, masked=True, look=JUDGED)
    incomplete = any(node.unreachable or node.errors for node in snapshot.nodes.values())
    return Exit.INCOMPLETE if incomplete else Exit.OK


def _record(probes: Any, options: dict[str, Any], model: str | None, output: str | None) -> int:
    from ncdiag.collect import collect
    from ncdiag.host import Host
    from ncdiag.record import Recorder

    if output is None or options["nodes"] != "local":
        raise click.UsageError(
            "--record writes a tree of this machine: give -o FOLDER or -o FILE.tar.gz, and no other --nodes"
        )
    recorder = Recorder(
        Host(python=options["python"], pid=options["pid"], environment=read_env_file(options["env_file"]), model=model)
    )
    node = collect(recorder, probes, budget_s=options["timeout_s"])
    try:
        recorder.save(output)
    except OSError as error:
        raise click.UsageError(f"cannot write {output}: {error.strerror}") from None
    tell_saved(output, JUDGED)
    return Exit.INCOMPLETE if node.errors else Exit.OK
