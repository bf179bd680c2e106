"""`ncdiag drill`."""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any

import click

from ncdiag import redact
from ncdiag.cli.options import output_options, write_result
from ncdiag.cli.types import InputFile, Seconds
from ncdiag.exits import Exit
from ncdiag.model import SCHEMA


@click.command()
@click.argument("fault", required=False)
@click.option(
    "--list", "list_", is_flag=True, help="The exercises by number, and which can run here; not what is broken."
)
@click.option("--spoil", is_flag=True, help="With --list: what is broken as well.")
@click.option(
    "--shape",
    type=click.Choice(["gloo", "tp2", "nodes", "ray"]),
    help="What to break: a plain torch job on two hosts (the default), vLLM on one host, on two, in Ray.",
)
@click.option("--seed", type=int, metavar="N", help="Pick the same exercise and give the same hints again.")
@click.option("--solve", is_flag=True, help="ncdiag finds it by itself; nobody is asked.")
@click.option(
    "--answer", metavar="CAUSE", help="The answer in advance, as 'rank-died' or 'rank-died b'; nobody is asked."
)
@click.option("--keep", is_flag=True, help="When the truth is shown, leave the hosts up until Ctrl-C.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Seconds(min=1),
    default=1800.0,
    show_default=True,
    help="Seconds that you have; then the truth is shown.",
)
@click.option(
    "--python",
    type=InputFile(exists=True),
    metavar="PATH",
    help="The interpreter that has torch (vLLM, Ray); default: NCDIAG_LAB_PYTHON, else the one of ncdiag.",
)
@click.option("--enter", metavar="HOST", help="A shell on a host of the drill that runs in another terminal.")
@click.option("--clean", is_flag=True, help="Remove what a killed drill has left, and nothing else.")
@output_options("text", "json")
@click.pass_obj
def command(
    obj: dict[str, Any],
    fault: str | None,
    list_: bool,
    enter: str | None,
    clean: bool,
    python: str | None,
    **options: Any,
) -> int:
    """Training for who is on call: a small real cluster on this machine is broken; find the cause, see the truth.

    FAULT: number or name of an exercise; without it one is picked. The hosts are network namespaces with sshd, the engine is real. Needs Linux,
    root and an interpreter with torch. All that was made ends with the drill. Exit code: 0 the answer is right, 1 it is not or was given up.
    """
    from ncdiag.drill import exercise, lead, remains, shell
    from ncdiag.drill.bench import NotSet

    if python:
        os.environ["NCDIAG_LAB_PYTHON"] = python
    try:
        if enter:
            shell.enter(enter)
        if clean:
            click.echo("\n".join(map(_removed, remains.clean())) or "nothing was left")
            return Exit.OK
        if list_:
            return _list(obj, **options)
        seed = options["seed"] if options["seed"] is not None else random.SystemRandom().randrange(10**6)
        chosen = lead.choose(fault, options["shape"], seed)
        answer = lead.read_answer(options["answer"]) if options["answer"] else None
        if options["solve"] and (answer or options["keep"]):
            raise click.UsageError("--solve answers by itself and then ends; leave --answer and --keep out")
        lead.check(chosen)
        if not options["solve"] and not answer and not sys.stdin.isatty():
            raise click.UsageError(
                "stdin is no terminal, so nobody can answer; give --solve (ncdiag finds it) or --answer CAUSE"
            )
        show = lead.Show(quiet=obj["quiet"], err=options["format_"] == "json")
        for record in remains.clean():
            show.note(_removed(record))
        lead.end_on_signals()
        show.note(f"drill {exercise.number_of(chosen)}")

        def write(result: dict[str, Any], text: str) -> None:
            if options["format_"] == "json":
                write_result(json.dumps(redact.data(result), indent=1), options["output"], masked=True)
            elif options["output"]:
                write_result(text, options["output"])

        if options["solve"]:
            return lead.solve(chosen, seed, show, write)
        return lead.ask(chosen, seed, show, write, answer=answer, seconds=options["timeout_s"], keep=options["keep"])
    except (lead.Refused, LookupError) as error:
        raise click.UsageError(str(error.args[0])) from None
    except NotSet as error:
        click.echo(f"Error: this exercise could not be set up, so nothing can be said about it: {error}", err=True)
        return Exit.INCOMPLETE


def _removed(record: Any) -> str:
    names = ", ".join(record.hosts) or "hosts"
    return f"removed what process {record.owner}, which is gone, had left: {names}, their processes and {record.folder}"


def _list(obj: dict[str, Any], shape: str | None, spoil: bool, format_: str, output: str | None, **_: Any) -> int:
    from ncdiag.drill import exercise, lead, needs, screen

    lacking = {name: needs.missing(name) for name in ([shape] if shape else needs.SHAPES)}
    faults = {number: fault for number, fault in exercise.numbers().items() if fault.shape in lacking}
    if format_ == "text":
        color = "never" if output else obj["color"]
        write_result(screen.exercises(faults, lacking, spoil=spoil, color=color), output)
        return Exit.OK
    rows = []
    for number, fault in faults.items():
        reasons = [*lacking[fault.shape], *filter(None, [needs.lacks(fault)])]
        row = {"number": number, "shape": fault.shape, "level": exercise.level(fault), "can_run": not reasons}
        rows.append({**row, "missing": reasons, **({"name": fault.name, **lead.truth(fault)} if spoil else {})})
    found = {"schema": SCHEMA, "command": "drill", "exercises": rows, "exit": int(Exit.OK)}
    write_result(json.dumps(found, indent=1), output)
    return Exit.OK
