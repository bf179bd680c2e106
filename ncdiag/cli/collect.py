"""`ncdiag collect`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from ncdiag import redact
from ncdiag.cli.gather import choose_probes, gather
from ncdiag.cli.options import node_options, plan_of, plan_options, read_env_file, tell_saved, write_result
from ncdiag.cli.types import OutputFile
from ncdiag.exits import Exit
from ncdiag.model import NodeFacts
from ncdiag.nodeset import fold
from ncdiag.report.folding import unnamed
from ncdiag.report.plain import plain
from ncdiag.report.wrapped import wrapped

MOST = 20
"""Lines about what is missing."""
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
    """Save what the nodes tell, with secrets masked; `ncdiag preflight --nodes file:…` judges it later, anywhere.

    Exit code: 0 all was read, 3 a node or something on it could not be.
    """
    plan = plan_of(options)
    everything, chosen = choose_probes(options["folders"], options["only"], options["skip"])
    if record:
        return _record(everything.sources(chosen), options, plan.model, output, obj["quiet"])
    if output is None and sys.stdout.isatty():
        raise click.UsageError("a snapshot is long JSON: give -o FILE, or pipe it on")
    snapshot = gather(everything, chosen, plan, options, obj["quiet"])
    write_result(json.dumps(redact.data(snapshot.as_dict()), indent=1), output, masked=True, look=JUDGED)
    return _told(list(snapshot.nodes.values()), obj["quiet"])


def _told(nodes: Sequence[NodeFacts], quiet: bool) -> Exit:
    """What is missing is said on stderr, what many nodes lack once."""
    lacking: dict[str, list[str]] = {}
    for node in nodes:
        missing = [node.unreachable] if node.unreachable else [f"{probe}: {why}" for probe, why in node.errors.items()]
        for text in missing:
            lacking.setdefault(unnamed(plain(text), node.node).replace("\0", "NODE"), []).append(node.node)
    for text, names in [] if quiet else list(lacking.items())[:MOST]:
        click.echo(wrapped(f"not read on {plain(fold(names))}: {text}", "  "), err=True)
    if len(lacking) > MOST and not quiet:
        click.echo(f"and {len(lacking) - MOST} more; ncdiag preflight --nodes file:… shows all", err=True)
    return Exit.INCOMPLETE if lacking else Exit.OK


def _record(probes: Any, options: dict[str, Any], model: str | None, output: str | None, quiet: bool) -> int:
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
    return _told([node], quiet)
