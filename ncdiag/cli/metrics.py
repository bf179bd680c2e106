"""`ncdiag metrics`."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ncdiag.cli import Group
from ncdiag.cli.options import write_result
from ncdiag.cli.types import InputFile, Number, OutputFile
from ncdiag.exits import Exit

if TYPE_CHECKING:
    from ncdiag.metrics.sources import Chosen

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=Group)
def command() -> None:
    """Series for Prometheus: RDMA and network ports, GPUs, findings, ranks and engines; alert rules and a dashboard over them."""


def _url(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not value.startswith(("http://", "https://")):
            raise click.BadParameter(
                f"{value[:80]!r} is no http:// or https:// address, such as http://127.0.0.1:8000/metrics"
            )
    return values


def source_options(function: F) -> F:
    """What is read. Gives the command `chosen`."""
    options = [
        click.option("--engine", "engines", multiple=True, metavar="URL", callback=_url, help="vLLM's /metrics, such as http://127.0.0.1:8000/metrics. May be given more than once."),
        click.option("--ranks", type=click.IntRange(0), metavar="N", help="How many ranks this node should hold; fewer is an alert."),
        click.option("--findings", "findings", type=InputFile(), metavar="FILE", help="What `ncdiag preflight --format json -o FILE` saved."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _chosen(values: dict[str, Any]) -> Chosen:
    from ncdiag.metrics.sources import Chosen

    return Chosen(values["engines"], values["ranks"], values["findings"])


@command.command()
@source_options
@click.option(
    "--listen",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Where to listen. Other addresses than loopback show these numbers to the network.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=9795, show_default=True)
@click.option(
    "--certificate",
    type=InputFile(exists=True),
    help="Speak TLS with this certificate (PEM); wants --key.",
)
@click.option("--key", type=InputFile(exists=True))
@click.option("--client-ca", type=InputFile(exists=True), help="Ask clients for a certificate of this authority.")
@click.option(
    "--preflight-every",
    "every_min",
    type=Number(1),
    metavar="MINUTES",
    help="Judge this node again and again, and show the findings.",
)
def serve(
    listen: str,
    port: int,
    certificate: str | None,
    key: str | None,
    client_ca: str | None,
    every_min: float | None,
    **values: Any,
) -> int:
    """Answer Prometheus, until SIGTERM or Ctrl-C."""
    from prometheus_client import start_http_server

    from ncdiag.metrics.sources import registry

    if (certificate is None) != (key is None) or (client_ca and not certificate):
        raise click.UsageError("TLS wants --certificate and --key; --client-ca comes on top of them")
    if every_min is not None and values["findings"]:
        raise click.UsageError("give --findings or --preflight-every, not both")
    said: list[str] = []
    found = registry(_chosen(values), every_s=every_min * 60 if every_min else None, watch=True, say=said.append)
    for line in said:
        print(line, file=sys.stderr)
    _must_be_address(listen)
    try:
        server, _ = start_http_server(
            port,
            listen,
            found,
            certfile=certificate,
            keyfile=key,
            client_cafile=client_ca,
            client_auth_required=client_ca is not None,
        )
    except OSError as error:
        raise click.UsageError(f"cannot listen on {listen} port {port}: {error.strerror or error}") from None
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: ended.set())
    print(f"listening on {listen} port {server.server_port}", file=sys.stderr, flush=True)
    try:
        while not ended.wait(1):
            pass
    finally:
        server.shutdown()
        server.server_close()
    return Exit.OK


@command.command()
@source_options
@click.option("--preflight", is_flag=True, help="Judge this node, too, and show the findings.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=OutputFile(),
    metavar="FILE",
    help="Written at once or not at all; ends in .prom for node_exporter.",
)
def textfile(preflight: bool, output: str, **values: Any) -> int:
    """Write the series to a file for node_exporter's text-file collector, and end. Xid events are only counted by `serve`."""
    from prometheus_client import generate_latest

    from ncdiag.metrics.sources import registry

    if preflight and values["findings"]:
        raise click.UsageError("give --findings or --preflight, not both")
    write_whole(output, generate_latest(registry(_chosen(values), every_s=0 if preflight else None)))
    return Exit.OK  # without a word: a timer runs it


def write_whole(path: str, content: bytes) -> None:
    """Into a file beside it first, so that nobody ever reads half of it. Mode 0644: node_exporter runs as another user."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    except OSError as error:
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise click.UsageError(f"cannot write {path}: {error.strerror}") from None


@command.command()
@click.option(
    "--metrics",
    type=click.Choice(["own", "others"]),
    default="own",
    show_default=True,
    help="Over ncdiag's series, or over those of node_exporter, DCGM exporter and vLLM.",
)
@click.option(
    "--oncall", is_flag=True, help="The settings of `ncdiag oncall` that lead each alert to its playbook, instead."
)
@click.option(
    "--ttft-p95",
    "ttft_p95_s",
    type=Number(0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="95 % of requests must have their first token within this.",
)
@click.option(
    "--runbooks",
    default="",
    metavar="URL",
    help="Where playbooks are shown: URL/NAME.yaml becomes each alert's runbook_url.",
)
@click.option("-o", "--output", type=OutputFile(), metavar="FILE")
def rules(metrics: str, oncall: bool, ttft_p95_s: float, runbooks: str, output: str | None) -> int:
    """Alert rules for Prometheus. Their labels lead `ncdiag oncall` to the playbook."""
    from ncdiag.metrics.alerts import Limits
    from ncdiag.metrics.rules import oncall_rules, rule_file

    limits = Limits(ttft_p95_s=ttft_p95_s)
    write_result(oncall_rules(limits) if oncall else rule_file(metrics, limits, runbooks), output)
    return Exit.OK


@command.command()
@click.option("-o", "--output", type=OutputFile(), metavar="FILE")
def dashboard(output: str | None) -> int:
    """A dashboard for Grafana (JSON, to import)."""
    from ncdiag.metrics.dashboard import dashboard as made

    write_result(made(), output)
    return Exit.OK


def _must_be_address(listen: str) -> None:
    """Raises click.UsageError for ADDRESS:PORT in one word, with the way out."""
    address, colon, port = listen.rpartition(":")
    if colon and ":" not in address and port.isdecimal():
        raise click.UsageError(
            f"--listen {listen}: the address alone, and the port apart: --listen {address or '0.0.0.0'} --port {port}"
        )
