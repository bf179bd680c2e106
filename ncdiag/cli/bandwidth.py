"""`ncdiag bandwidth`."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ncdiag import redact
from ncdiag.bandwidth import baseline, results, sweep, tables
from ncdiag.bandwidth.engine_share import Load, Shape
from ncdiag.bandwidth.limit import Limit
from ncdiag.bandwidth.measure import Nobody, Report, Taken, Wanted, measure
from ncdiag.bandwidth.reach import ways
from ncdiag.cli.options import (
    FORMATS,
    SHOWN_AGAIN,
    exit_code,
    fail_on_option,
    output_options,
    read_env_file,
    tell_saved,
    write_other,
    write_result,
)
from ncdiag.cli.types import InputFile, Number, OutputFile, Seconds
from ncdiag.exits import Exit
from ncdiag.fleet.base import FleetError
from ncdiag.model import unknown
from ncdiag.nodeset import counted
from ncdiag.report.console import plain
from ncdiag.report.progress import Doing
from ncdiag.report.run import now
from ncdiag.report.saved import of_json

CARRIED = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TP_SOCKET_", "UCX_", "FI_", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables of this shell that the ranks get too, on every node."""
_SIZE = re.compile(r"(\d+)\s*([KMG]?)(?:i?B)?", re.I)
MAX_READ_BYTES = 64 << 20


class Size(click.ParamType):
    """`8`, `64K`, `1M`, `2G`: powers of 1024, as nccl-tests has them."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no size; such as 8, 64K, 256M or 2G", param, ctx)
        return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2).upper()]


@click.command()
@click.argument("files", nargs=-1, type=InputFile(exists=True, path_type=Path))
@click.option(
    "--nodes",
    default="local",
    show_default=True,
    metavar="WHERE",
    help="local, ssh:NODESET, ssh:@HOSTFILE, slurm, slurm:JOBID, ray or ray:ADDRESS.",
)
@click.option("--ssh-user", metavar="USER", help="Log in as this user.")
@click.option("--ssh-config", type=InputFile(exists=True), help="A configuration of OpenSSH other than your own.")
@click.option("--python", metavar="PATH", help="The engine's interpreter, with torch in it, on every node.")
@click.option("--env-file", type=InputFile(), help="NAME=VALUE lines that the engine is started with.")
@click.option(
    "--op",
    "ops",
    multiple=True,
    type=click.Choice([*sweep.OPS, "all"]),
    default=("all_reduce",),
    show_default=True,
    help="What is measured.",
)
@click.option("--min", "least", type=Size(), default="8", show_default=True, help="Smallest size.")
@click.option("--max", "most", type=Size(), help="Largest size; default: 512M on GPUs, 16M on CPUs.")
@click.option("--factor", type=click.IntRange(2), default=2, show_default=True, help="From one size to the next.")
@click.option("--dtype", type=click.Choice(list(sweep.DTYPES)), default="float32", show_default=True)
@click.option(
    "--backend",
    type=click.Choice(["auto", "nccl", "gloo"]),
    default="auto",
    show_default=True,
    help="auto: NCCL where every node has GPUs.",
)
@click.option("--ranks-per-node", "per_node", type=click.IntRange(1), help="Default: one a GPU, or one without GPUs.")
@click.option("--warmup", type=click.IntRange(1), default=5, show_default=True)
@click.option(
    "--precision",
    type=Number(0.001, 1),
    default=0.01,
    show_default=True,
    help="Half of the 95 % confidence interval, over the mean, at which a size is done.",
)
@click.option(
    "--seconds",
    "budget_s",
    type=Seconds(0.05),
    default=2.0,
    show_default=True,
    help="At most this long for one size.",
)
@click.option("--no-check", is_flag=True, help="Do not compare results on random data.")
@click.option("--share", is_flag=True, help="Run even on GPUs that someone uses.")
@click.option(
    "--isolate",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Find the node, NIC or pair that is slow or stuck, pair by pair.",
)
@click.option("--pair-size", type=Size(), help="Message size of the pairs; default: 64M on GPUs, 4M on CPUs.")
@click.option(
    "--pair-timeout",
    "pair_limit_s",
    type=Seconds(5),
    help="A pair that takes longer is stuck and left out; default: 60, and a quarter of what is left of --timeout.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=Seconds(5),
    help="Seconds for everything: reaching the nodes, the run of all ranks, the pairs. Default: each has a limit of its own.",
)
@click.option(
    "--expect",
    "expected",
    type=Number(0, min_open=True),
    metavar="GB/S",
    help="The busbw that you expect, in place of the one from link rates.",
)
@click.option("--baseline", "baseline_path", type=InputFile(), help="Compare with this saved run.")
@click.option("--save-baseline", type=OutputFile(), help="Save this run to compare with later.")
@click.option(
    "--model",
    type=InputFile(folders=True, path_type=Path),
    help="A model directory or config.json: what the bandwidth means for it.",
)
@click.option(
    "--batch", type=click.IntRange(1), default=32, show_default=True, help="With --model: sequences in a decode step."
)
@click.option(
    "--prefill-tokens",
    type=click.IntRange(1),
    default=8192,
    show_default=True,
    help="With --model: tokens in a prefill.",
)
@fail_on_option
@output_options(*FORMATS)
@click.pass_obj
def command(
    obj: dict[str, Any], files: tuple[Path, ...], format_: str, output: str | None, fail_on: str, **options: Any
) -> int:
    """Measure all-reduce and its kin over the nodes' GPUs, say what it should be, and who is slow.

    Loads network and GPUs. One process a GPU, in the engine's interpreter; nothing is installed on the nodes, nothing stays there. With FILEs
    it reads results of nccl-tests, perftest and NCCL's diagnostics instead of measuring.

    Exit code: 0 nothing found, 1 something at or above --fail-on, 3 something could not be measured.
    """
    if files:
        return _read(files, format_, output)
    _apart(output, options)
    limit = Limit(options["limit_s"])
    try:
        wanted = _wanted(options)
        environment = {name: value for name, value in os.environ.items() if name.startswith(CARRIED)}
        environment.update(read_env_file(options["env_file"]))
        agents = ways(
            options["nodes"], options["python"], environment, options["ssh_user"], options["ssh_config"], limit
        )
        with Doing(obj["quiet"]) as doing:
            report = measure(agents, wanted, doing.say, limit)
        if options["save_baseline"]:
            if report.rows:
                baseline.save(options["save_baseline"], report.rows, report.about)
                tell_saved(options["save_baseline"], "compare with it later: ncdiag bandwidth --baseline {} …")
            else:
                report.findings.append(
                    unknown("no baseline was saved: nothing was measured", source="ncdiag bandwidth")
                )
    except Taken as error:
        message = "the GPUs are in use, and a bandwidth run would disturb who uses them:\n" + redact.text(
            plain_lines(str(error))
        )
        raise click.ClickException(message + "\n--share runs all the same") from None
    except (Nobody, FleetError, baseline.BaselineError) as error:
        raise click.ClickException(redact.text(plain(error))) from None
    code = exit_code(report.findings, fail_on)
    data = as_data(report, code)
    if format_ == "json":
        write_result(json.dumps(redact.data(data)), output, masked=True, look=SHOWN_AGAIN)
    elif format_ != "text":
        write_other(of_json(json.dumps(data)), format_, output, fail_on)
    else:
        from ncdiag.report.bandwidth import render
        from ncdiag.report.wrapped import columns

        width = tables.WIDTH if output else columns()
        shown = [
            (op, tables.nccl_tests(rows, width) + tables.scatter(rows), tables.spread(rows))
            for op in dict.fromkeys(row.op for row in report.rows)
            if (rows := [row for row in report.rows if row.op == op])
        ]
        write_result(
            render(data, report.findings, shown, color=None if output else obj["color"], detail=obj["verbose"] > 0),
            output,
        )
    return code


def _apart(output: str | None, options: dict[str, Any]) -> None:
    """The report must not overwrite a baseline. Raises click.UsageError."""
    for name in ("baseline_path", "save_baseline"):
        if output and options[name] and os.path.realpath(output) == os.path.realpath(options[name]):
            switch = {"baseline_path": "--baseline", "save_baseline": "--save-baseline"}[name]
            raise click.UsageError(
                f"-o and {switch} name the same file, {output}: the report would overwrite the baseline"
            )


def plain_lines(text: str) -> str:
    return "\n".join(plain(line) for line in text.split("\n"))


def _sizes(options: dict[str, Any]) -> tuple[int, int | None, int]:
    """Least, most (None: not given), factor. Raises click.UsageError."""
    least, most, element = options["least"], options["most"], sweep.DTYPES[options["dtype"]]
    for name in ("least", "most", "pair_size"):
        if options[name] is not None and options[name] < element:
            switch = {"least": "--min", "most": "--max", "pair_size": "--pair-size"}[name]
            raise click.UsageError(
                f"{switch} {options[name]}: at least one element, which is {element} bytes of {options['dtype']}"
            )
    if most is not None and most < least:
        raise click.UsageError(f"--max {most} is less than --min {least} (bytes): no size is left to measure")
    return least, most, options["factor"]


def _wanted(options: dict[str, Any]) -> Wanted:
    ops = sweep.OPS if "all" in options["ops"] else tuple(dict.fromkeys(options["ops"]))
    shape = _shape(options["model"])
    if shape is not None and "send_recv" not in ops:
        ops = (*ops, "send_recv")
    return Wanted(
        ops=ops,
        sizes=_sizes(options),
        dtype=options["dtype"],
        backend=options["backend"],
        effort=sweep.Effort(options["warmup"], options["precision"], options["budget_s"], not options["no_check"]),
        per_node=options["per_node"],
        share=options["share"],
        isolate=options["isolate"],
        pair_size=options["pair_size"],
        pair_limit_s=options["pair_limit_s"],
        limit_s=options["limit_s"],
        expect=options["expected"],
        baseline=baseline.load(options["baseline_path"]) if options["baseline_path"] else None,
        shape=shape,
        load=Load(options["batch"], options["prefill_tokens"]),
    )


def _shape(path: Path | None) -> Shape | None:
    """The model's layers, width and weights, as `ncdiag plan` reads them. Raises click.ClickException."""
    if path is None:
        return None
    from ncdiag.sizing.config import ConfigError
    from ncdiag.sizing.gpus import parse_gpus
    from ncdiag.sizing.plan import Request, make_plan

    try:
        model = make_plan(Request(path, parse_gpus(()), None, 1, "auto", "auto", 0.9, None))["model"]
        config = json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    except (ConfigError, OSError, ValueError) as error:
        raise click.ClickException(plain(error)) from None
    text = config.get("text_config") or config
    hidden = next((text[key] for key in ("hidden_size", "n_embd", "d_model") if isinstance(text.get(key), int)), None)
    if hidden is None:
        raise click.ClickException(f"{path}: no hidden_size in the config")
    parameters = int(model["parameters"])
    return Shape(
        int(model["layers"]),
        hidden,
        parameters,
        int(model["parameters_active"] or parameters),
        int(model["weights_bytes"]),
    )


def as_data(report: Report, code: int) -> dict[str, Any]:
    """The contract: keys only get added."""
    return {
        "schema": 1,
        "command": "bandwidth",
        "run": now().as_dict(),
        **report.about,
        "ranks": report.ranks,
        "versions": report.versions,
        "rows": [row.as_dict() for row in report.rows],
        "expectation": report.expectation.as_dict(),
        "changes": [asdict(change) for change in report.changes],
        "findings": [
            {**finding.as_dict(), "probe": "bandwidth"}
            for finding in sorted(report.findings, key=lambda finding: -finding.status.severity)
        ],
        "isolation": report.isolation.as_dict() if report.isolation else None,
        "engine": [forward.as_dict() for forward in report.engine],
        "self_tests": report.self_tests,
        "logs": report.logs,
        "exit": int(code),
    }


def _read(files: tuple[Path, ...], format_: str, output: str | None) -> int:
    found = {}
    for path in files:
        with path.open(encoding="utf-8", errors="replace") as file:
            try:
                found[str(path)] = results.read(file.read(MAX_READ_BYTES), str(path))
            except ValueError as error:
                raise click.ClickException(plain(error)) from None
    if format_ != "text":
        told = {name: {**asdict(one), "rows": [row.as_dict() for row in one.rows]} for name, one in found.items()}
        data = {"schema": 1, "command": "bandwidth", "files": told, "exit": 0}
        if format_ == "json":
            write_result(json.dumps(redact.data(data)), output, masked=True, look=SHOWN_AGAIN)
        else:
            write_other(of_json(json.dumps(data)), format_, output)
        return Exit.OK
    text = ""
    for name, one in found.items():
        text += f"# {plain(name)}: {one.tool}\n"
        if one.rows:
            text += f"# {one.rows[0].op}, {counted(one.rows[0].ranks, 'rank')}\n{tables.nccl_tests(one.rows)}"
        for row in one.perftest.get("rows", ()):
            text += f"{row['size_bytes']:12d}  {row['average_gbytes_s']:.4g} GB/s average, {row['peak_gbytes_s']:.4g} peak\n"
        for line in one.diagnostics:
            text += f"{'ok' if line['ok'] else 'warn':<8}{plain(line['host'])}: {plain(line['text'])}\n"
    write_result(text, output)
    return Exit.OK
