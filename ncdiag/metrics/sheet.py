"""Samples of one scrape, on their way to prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ncdiag import redact
from ncdiag.metrics.names import SERIES
from ncdiag.report.plain import one_line

_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}


class NotRead(Exception):
    """A source could not be read; the message is the reason."""


class Sheet:
    """Takes samples of the series in `names.SERIES` and no others."""

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}

    def add(self, name: str, value: float, **labels: object) -> None:
        """One sample of a gauge or counter. Labels that are not given are empty."""
        self._family(name).add_metric(self._values(name, labels), value)

    def add_histogram(
        self, name: str, buckets: Sequence[tuple[str, float]], total: float | None, **labels: object
    ) -> None:
        """`buckets`: (upper bound as text, cumulative count), `+Inf` last."""
        self._family(name).add_metric(self._values(name, labels), list(buckets), total)

    def take(self, other: Sheet) -> None:
        """Moves everything of another sheet into this one."""
        for name, family in other._families.items():
            mine = self._families.get(name)
            if mine is None:
                self._families[name] = family
            else:
                mine.samples.extend(family.samples)

    def families(self) -> Iterator[Metric]:
        yield from self._families.values()

    def _family(self, name: str) -> Any:
        if name not in self._families:
            series = SERIES[name]
            self._families[name] = _FAMILIES[series.kind](name, series.help, labels=series.labels)
        return self._families[name]

    def _values(self, name: str, labels: dict[str, object]) -> list[str]:
        wanted = SERIES[name].labels
        if not set(labels) <= set(wanted):
            raise KeyError(f"{name} has no label {', '.join(set(labels) - set(wanted))}")
        return [one_line(redact.text(str(labels.get(label, "")))) for label in wanted]
