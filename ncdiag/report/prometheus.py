"""The Prometheus text form, for the text-file collector and for push gateways."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from ncdiag import redact
from ncdiag.check import counts
from ncdiag.model import Status
from ncdiag.report.compare import Comparison
from ncdiag.report.folding import gravest
from ncdiag.report.headline import headline, status_of
from ncdiag.report.plain import one_line
from ncdiag.report.result import Result

PLACE = ("node", "device", "rank")


def render(results: Sequence[Result], comparison: Comparison | None = None) -> str:
    """Gauges named `ncdiag_…`; what is ok or does not apply is only counted."""
    registry = CollectorRegistry()
    _verdicts(registry, results)
    _findings(registry, results)
    _causes(registry, results)
    _ranks(registry, results)
    _figures(registry, results)
    if comparison is not None:
        gauge = Gauge(
            "ncdiag_compared", "Findings and causes compared with an older result.", ("change",), registry=registry
        )
        for name, items in comparison.lists():
            gauge.labels(name).set(len(items))
    return generate_latest(registry).decode()


def _label(value: object) -> str:
    return one_line(redact.text("" if value is None else str(value)))


def _verdicts(registry: CollectorRegistry, results: Sequence[Result]) -> None:
    verdict = Gauge(
        "ncdiag_verdict", "1 for the status that the result as a whole has.", ("command", "status"), registry=registry
    )
    code = Gauge(
        "ncdiag_exit_code",
        "The exit code: 0 nothing found, 1 found, 3 something could not be looked at.",
        ("command",),
        registry=registry,
    )
    for result in results:
        for status in Status:
            verdict.labels(_label(result.command), status.value).set(headline(result).status is status)
        code.labels(_label(result.command)).set(result.code)


def _findings(registry: CollectorRegistry, results: Sequence[Result]) -> None:
    nodes = Gauge("ncdiag_nodes", "Nodes that were looked at.", ("command",), registry=registry)
    number = Gauge("ncdiag_findings", "Findings by status.", ("command", "status"), registry=registry)
    each = Gauge(
        "ncdiag_finding",
        "Findings of one probe at one place that are not ok.",
        ("probe", "status", "cause", *PLACE),
        registry=registry,
    )
    for result in results:
        nodes.labels(_label(result.command)).set(len(result.nodes))
        if result.findings:
            for status, count in counts(result.findings).items():
                number.labels(_label(result.command), status).inc(count)
        for finding in gravest(result.findings):
            if finding.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
                place = (_label(finding.where.get(key)) for key in PLACE)
                each.labels(_label(finding.probe), finding.status.value, _label(finding.cause), *place).inc()


def _causes(registry: CollectorRegistry, results: Sequence[Result]) -> None:
    gauge = Gauge(
        "ncdiag_cause",
        "Causes of the ranked list: 1 the first, 2 the second.",
        ("cause", "confidence", "status", *PLACE),
        registry=registry,
    )
    best: dict[tuple[str, ...], int] = {}
    for result in results:
        for position, cause in enumerate(result.causes, 1):
            labels = (
                _label(cause.cause),
                cause.confidence,
                status_of(cause).value,
                *(_label(cause.where.get(key)) for key in PLACE),
            )
            best[labels] = min(position, best.get(labels, position))
    for labels, position in best.items():
        gauge.labels(*labels).set(position)


def _ranks(registry: CollectorRegistry, results: Sequence[Result]) -> None:
    gauge = Gauge("ncdiag_ranks", "Ranks by state and stage.", ("command", "state", "stage"), registry=registry)
    for result in results:
        for rank in result.ranks:
            gauge.labels(_label(result.command), _label(rank.state), _label(rank.stage)).inc()


def _figures(registry: CollectorRegistry, results: Sequence[Result]) -> None:
    pair = Gauge(
        "ncdiag_pair_busbw_bytes_per_second",
        "Bandwidth between two nodes; 0 where the pair gave no figure.",
        ("one", "other"),
        registry=registry,
    )
    stage = Gauge(
        "ncdiag_stage_seconds",
        "Most seconds that a process spent in a stage of the start-up.",
        ("stage",),
        registry=registry,
    )
    for result in results:
        for one in result.pairs:
            pair.labels(_label(one.one), _label(one.other)).set((one.gbytes_s or 0.0) * 1e9)
        most: dict[str, float] = {}
        for lane in result.lanes:
            for span in lane.spans:
                most[span.stage] = max(most.get(span.stage, 0.0), span.end_s - span.start_s)
        for name, seconds in most.items():
            stage.labels(_label(name)).set(seconds)
