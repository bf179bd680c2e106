"""`ncdiag k8s`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ncdiag.cli import Group
from ncdiag.cli.options import (
    FORMATS,
    SHOWN_AGAIN,
    exit_code,
    fail_on_option,
    output_options,
    write_other,
    write_result,
)
from ncdiag.cli.types import InputFile, Number, OutputFile
from ncdiag.exits import Exit

FORMS = ("auto", "deployment", "statefulset", "lws")


@click.group(cls=Group)
def command() -> None:
    """Kubernetes manifests of multi-node engines: check them before they are applied, or write a skeleton."""


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE|-...", type=InputFile(allow_dash=True))
@click.option(
    "--weights-gib",
    type=Number(0, min_open=True),
    metavar="GIB",
    help="Size of the model's files; without it the model's name is asked (…-70B).",
)
@fail_on_option
@output_options(*FORMATS)
@click.option("--all", "show_all", is_flag=True, help="Show what is ok or does not apply, too.")
@click.pass_obj
def lint(
    obj: dict[str, Any],
    files: tuple[str, ...],
    weights_gib: float | None,
    fail_on: str,
    format_: str,
    output: str | None,
    show_all: bool,
) -> int:
    """Says what would keep these objects from coming up, or make them slow, each with file and line.

    Reads Pods, Deployments, StatefulSets, Jobs, LeaderWorkerSets, RayClusters, RayServices and RayJobs that run vLLM, with their services and claims.
    Asks no cluster. Templates have to be rendered first.

    Exit code: 0 nothing found, 1 something at or above --fail-on, 2 a file is no manifest.
    """
    from ncdiag.manifests.document import ManifestError, read
    from ncdiag.manifests.lint import lint as judged
    from ncdiag.manifests.shown import as_text
    from ncdiag.model import Snapshot, Status

    try:
        findings = judged(
            [document for file in files for document in read(file)], weights_gib * 2**30 if weights_gib else None
        )
    except ManifestError as error:
        raise click.UsageError(str(error)) from None
    code = exit_code(findings, fail_on)
    if format_ == "json":
        from ncdiag.report.json import findings_as_json
        from ncdiag.report.run import now

        write_result(findings_as_json("k8s lint", [], findings, code, now()), output, masked=True, look=SHOWN_AGAIN)
    elif format_ == "text":
        judged_nothing = all(finding.status is Status.SKIP for finding in findings)  # then it is said why
        write_result(as_text(findings, show_all or judged_nothing or obj["verbose"] > 0), output)
    else:
        from ncdiag.report.read import of_findings

        write_other(of_findings("k8s lint", Snapshot(), findings, code), format_, output, fail_on)
    return code


def _pairs(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value[:80]!r} is not LABEL=VALUE")
    return dict(value.split("=", 1) for value in values)


@command.command()
@click.argument("source", metavar="MODEL_DIR|PLAN.json", type=InputFile(exists=True, folders=True, path_type=Path))
@click.option(
    "--gpus", multiple=True, metavar="NAMExCOUNT[*NODES]", help="As for `ncdiag plan`: H100x8*2. Not with a saved plan."
)
@click.option("--max-model-len", type=click.IntRange(1, 2**31), metavar="TOKENS", help="As for `ncdiag plan`.")
@click.option(
    "--concurrency", type=click.IntRange(1, 10**6), default=1, show_default=True, help="As for `ncdiag plan`."
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default="auto",
    show_default=True,
    help="auto: a Deployment where one node holds the engine, else a LeaderWorkerSet.",
)
@click.option("--name", default="vllm", show_default=True, metavar="NAME", help="Of the objects.")
@click.option("--image", default="vllm/vllm-openai:latest", show_default=True)
@click.option(
    "--claim",
    default="models",
    show_default=True,
    metavar="NAME",
    help="The persistent volume claim with the model; several nodes must be able to mount it.",
)
@click.option(
    "--model-path",
    default="",
    metavar="PATH",
    help="Where the model lies in the claim; default: the name of the planned folder.",
)
@click.option(
    "--interface",
    default="",
    metavar="NAME",
    help="The interface that reaches the other nodes; needed where the engine spans several.",
)
@click.option("--gpu-resource", default="nvidia.com/gpu", show_default=True)
@click.option(
    "--rdma-resource",
    default="rdma/hca",
    show_default=True,
    help="As the RDMA device plugin calls it; `none` for a network without RDMA.",
)
@click.option(
    "--node-label",
    "labels",
    multiple=True,
    callback=_pairs,
    metavar="LABEL=VALUE",
    help="Which nodes; default: nvidia.com/gpu.present=true.",
)
@click.option("-o", "--output", type=OutputFile(), metavar="FILE")
def render(
    source: Path, gpus: tuple[str, ...], max_model_len: int | None, concurrency: int, output: str | None, **values: Any
) -> int:
    """Write manifests from a plan: saved by `ncdiag plan --format json`, or made here from the model's config."""
    from ncdiag.manifests.planned import RenderError
    from ncdiag.manifests.render import render as rendered
    from ncdiag.manifests.skeleton import Wanted

    rdma, labels = values["rdma_resource"], values["labels"]
    wanted = Wanted(
        values["name"], values["form"], values["image"], values["claim"], values["model_path"], values["interface"], values["gpu_resource"], "" if rdma == "none" else rdma,
        labels or Wanted().selector,
    )  # fmt: skip
    try:
        write_result(rendered(_plan(source, gpus, max_model_len, concurrency), wanted), output)
    except RenderError as error:
        raise click.UsageError(str(error)) from None
    return Exit.OK


def _plan(source: Path, gpus: tuple[str, ...], max_model_len: int | None, concurrency: int) -> dict[str, Any]:
    """Raises click.UsageError."""
    from ncdiag.sizing.config import ConfigError
    from ncdiag.sizing.gpus import GpuError, parse_gpus
    from ncdiag.sizing.plan import Request, make_plan

    saved = _saved_plan(source)
    if saved is not None:
        if gpus:
            raise click.UsageError(f"{source} is a plan already; --gpus belongs to making one")
        return saved
    try:
        return make_plan(Request(source, parse_gpus(gpus), max_model_len, concurrency))
    except (ConfigError, GpuError) as error:
        raise click.UsageError(str(error)) from None


def _saved_plan(source: Path) -> dict[str, Any] | None:
    """None for what is no saved plan: a model's folder or config."""
    if not source.is_file() or source.stat().st_size > 16 << 20:
        return None
    try:
        data = json.loads(source.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("command") != "plan":
        return None
    if (
        data.get("schema") != 1
        or not all(isinstance(data.get(key), dict) for key in ("cluster", "recommended", "model"))
        or not isinstance(data.get("commands"), list)
    ):
        raise click.UsageError(f"{source}: a damaged plan, or one of another ncdiag")
    return data
