"""vLLM's own /metrics under names that stay the same over its versions.

Source: vllm/engine/metrics.py of 0.4 to 0.9 and vllm/v1/metrics/loggers.py of 0.7 to 0.32. `gpu_cache_usage_perc` became
`kv_cache_usage_perc` and `gpu_prefix_cache_…` `prefix_cache_…` (pull request 18354, both written for a while, the old ones removed by
29330); `time_per_output_token_seconds` became `inter_token_latency_seconds` (24110). Through Ray the names begin with `ray_vllm:` or
`ray_vllm_`.
"""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ncdiag.metrics.sheet import NotRead, Sheet

TIMEOUT_S = 3.0
MAX_BYTES = 8 << 20

NAMES = {
    "ncdiag_engine_requests_waiting": ("num_requests_waiting",),
    "ncdiag_engine_requests_running": ("num_requests_running",),
    "ncdiag_engine_kv_cache_usage_ratio": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "ncdiag_engine_preemptions_total": ("num_preemptions_total",),
    "ncdiag_engine_prefix_cache_queries_total": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "ncdiag_engine_prefix_cache_hits_total": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    "ncdiag_engine_prompt_tokens_total": ("prompt_tokens_total",),
    "ncdiag_engine_generation_tokens_total": ("generation_tokens_total",),
    "ncdiag_engine_requests_finished_total": ("request_success_total",),
}
"""Ours -> vLLM's, newest first; the `_perc` gauges run from 0 to 1 in every version."""

HISTOGRAMS = {
    "ncdiag_engine_time_to_first_token_seconds": ("time_to_first_token_seconds",),
    "ncdiag_engine_inter_token_latency_seconds": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "ncdiag_engine_request_latency_seconds": ("e2e_request_latency_seconds",),
}

_PREFIX = re.compile(r"^(?:ray_)?vllm[:_]")
Sample = tuple[dict[str, str], float]


def fetch(url: str) -> str:
    """The text at `url`. Raises NotRead."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open(
            url, timeout=TIMEOUT_S
        ) as answer:
            body: bytes = answer.read(MAX_BYTES + 1)
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise NotRead(f"{url}: {getattr(error, 'reason', None) or error}") from None
    if len(body) > MAX_BYTES:
        raise NotRead(f"{url}: more than {MAX_BYTES >> 20} MiB")
    return body.decode("utf-8", "replace")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> None:
        return None


def read(url: str, sheet: Sheet) -> None:
    """Raises NotRead where the endpoint does not answer, or is not vLLM's."""
    samples = parse(fetch(url))
    if not any(name in samples for names in NAMES.values() for name in names):
        raise NotRead(f"{url}: it answers, with no metric of vLLM (is this the API server's /metrics?)")
    for ours, names in NAMES.items():
        for labels, value in _newest(samples, names):
            sheet.add(
                ours,
                value,
                **_labels(url, labels),
                **({"reason": labels.get("finished_reason", "")} if "finished" in ours else {}),
            )
    for ours, names in HISTOGRAMS.items():
        _histogram(samples, ours, names, url, sheet)


def parse(text: str) -> dict[str, list[Sample]]:
    """vLLM's name without its prefix -> samples. Raises NotRead for what is no exposition."""
    found: dict[str, list[Sample]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if _PREFIX.match(sample.name):
                    found.setdefault(_PREFIX.sub("", sample.name), []).append((sample.labels, sample.value))
    except (ValueError, IndexError, KeyError) as error:
        raise NotRead(f"not the text form of Prometheus: {error}") from None
    return found


def _newest(samples: dict[str, list[Sample]], names: Iterable[str]) -> list[Sample]:
    """Of one name only: versions that carry both count the same thing twice. NaN is left out."""
    every = next((samples[name] for name in names if name in samples), [])
    unique = {tuple(sorted(labels.items())): (labels, value) for labels, value in every if not math.isnan(value)}
    return list(unique.values())


def _labels(url: str, labels: dict[str, str]) -> dict[str, str]:
    return {
        "target": url,
        "model": labels.get("model_name", ""),
        "engine": labels.get("engine", "") or labels.get("ReplicaId", ""),
    }


def _histogram(samples: dict[str, list[Sample]], ours: str, names: Iterable[str], url: str, sheet: Sheet) -> None:
    name = next((name for name in names if f"{name}_bucket" in samples), None)
    if name is None:
        return
    grouped: dict[tuple[str, ...], dict[str, float]] = {}
    for labels, value in samples[f"{name}_bucket"]:
        where = _labels(url, labels)
        bounds = grouped.setdefault(tuple(where.values()), {})
        bounds[labels.get("le", "+Inf")] = bounds.get(labels.get("le", "+Inf"), 0.0) + value
    sums: dict[tuple[str, ...], float] = {}
    for labels, value in samples.get(f"{name}_sum", ()):
        key = tuple(_labels(url, labels).values())
        sums[key] = sums.get(key, 0.0) + value
    for key, bounds in grouped.items():
        if "+Inf" in bounds:
            target, model, engine = key
            ordered = sorted(bounds.items(), key=lambda item: float(item[0]))
            sheet.add_histogram(ours, ordered, sums.get(key), target=target, model=model, engine=engine)
