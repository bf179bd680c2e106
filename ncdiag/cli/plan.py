"""`ncdiag plan`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ncdiag.cli.options import output_options, write_result
from ncdiag.cli.types import InputFile, Number
from ncdiag.exits import Exit
from ncdiag.report.console import plain
from ncdiag.report.plan import render
from ncdiag.report.run import now
from ncdiag.sizing.config import ConfigError
from ncdiag.sizing.gpus import Cluster, GpuError, parse_gpus
from ncdiag.sizing.plan import KV_BYTES, Request, make_plan

NODE_TIMEOUT_S = 60.0
DTYPES = ("auto", "bfloat16", "float16", "half", "float32")


@click.command()
@click.argument("path", metavar="MODEL_DIR|config.json", type=InputFile(folders=True, path_type=Path))
@click.option(
    "--gpus",
    multiple=True,
    metavar="NAMExCOUNT[*NODES]",
    help="The GPUs of a node, and how many such nodes: H100x8, H100x8*2, 48GBx4. Without it, H100x8 is assumed.",
)
@click.option(
    "--nodes",
    metavar="WHERE",
    help="Read the GPUs from these nodes in place of --gpus: local, ssh:NODESET, ray, slurm, file:SNAPSHOT …",
)
@click.option("--ssh-user", metavar="USER", help="With --nodes over SSH: log in as this user.")
@click.option("--ssh-config", type=InputFile(exists=True), help="With --nodes over SSH: this configuration file.")
@click.option("--nodes-count", type=click.IntRange(1, 10000), metavar="N", help="How many equal nodes there are.")
@click.option("--max-model-len", type=click.IntRange(1, 2**31), metavar="TOKENS", help="Default: the model's context.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10**6),
    default=1,
    show_default=True,
    help="Requests of --max-model-len tokens to be held at once, over all replicas.",
)
@click.option(
    "--kv-dtype", type=click.Choice(["auto", *KV_BYTES]), default="auto", show_default=True, help="--kv-cache-dtype."
)
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True, help="The engine's --dtype.")
@click.option(
    "--gpu-memory-utilization",
    "utilization",
    type=Number(0, 1, min_open=True),
    default=0.90,
    show_default=True,
    help="Share of a GPU's memory the engine may use. vLLM's own default is 0.90, from about 0.2x on 0.92.",
)
@click.option(
    "--max-num-batched-tokens", "batched", type=click.IntRange(1, 2**24), metavar="N", help="Default: vLLM's."
)
@output_options("text", "json")
@click.pass_context
def command(
    context: click.Context,
    path: Path,
    gpus: tuple[str, ...],
    nodes: str | None,
    ssh_user: str | None,
    ssh_config: str | None,
    nodes_count: int | None,
    max_model_len: int | None,
    concurrency: int,
    kv_dtype: str,
    dtype: str,
    utilization: float,
    batched: int | None,
    format_: str,
    output: str | None,
) -> int:
    """Does the model fit, on how many GPUs, and should it be several nodes at all?

    Reads config.json and, where they are, the safetensors index and headers. Touches no GPU; the network only with --nodes.
    Exit code: 0 it fits, 1 it does not, 3 it cannot be known from what could be read.
    """
    if nodes is not None and (gpus or nodes_count is not None):
        raise click.UsageError("--nodes reads the GPUs from the nodes; leave out --gpus and --nodes-count")
    try:
        quiet = bool((context.obj or {}).get("quiet"))
        cluster = parse_gpus(gpus, nodes_count) if nodes is None else _found(nodes, ssh_user, ssh_config, quiet)
        plan = make_plan(Request(path, cluster, max_model_len, concurrency, kv_dtype, dtype, utilization, batched))
    except (ConfigError, GpuError) as error:
        raise click.ClickException(plain(error)) from None  # one line, exit code 2
    code = {True: Exit.OK, False: Exit.FINDING}.get(plan["recommended"]["fits"], Exit.INCOMPLETE)
    head = {"schema": plan["schema"], "command": plan["command"], "run": now().as_dict()}
    as_json = json.dumps({**head, **plan, "exit": int(code)}, indent=2) + "\n"
    write_result(as_json if format_ == "json" else render(plan), output)
    return code


def _found(nodes: str, ssh_user: str | None, ssh_config: str | None, quiet: bool) -> Cluster:
    """The GPUs that the nodes tell of. Raises GpuError, click.UsageError."""
    from ncdiag.cli.gather import choose_probes, gather
    from ncdiag.model import Plan
    from ncdiag.sizing.found import cluster_of

    everything, chosen = choose_probes((), ("gpus",), ())
    options = {
        "nodes": nodes,
        "ssh_user": ssh_user,
        "ssh_config": ssh_config,
        "folders": (),
        "python": None,
        "pid": None,
        "env_file": None,
    }
    return cluster_of(gather(everything, chosen, Plan(), {**options, "timeout_s": NODE_TIMEOUT_S}, quiet))
