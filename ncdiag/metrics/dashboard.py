"""The Grafana dashboard: JSON of schema version 39 (Grafana 11), with the data source as a variable."""

from __future__ import annotations

import json
from typing import Any

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 8, 8
_ON = 'instance=~"$instance"'

Query = tuple[str, str]
"""Expression and legend."""

ROWS: list[tuple[str, list[tuple[str, str, str, list[Query]]]]] = [
    ("Engines", [
        ("Requests that wait and run", "timeseries", "short", [
            ("ncdiag_engine_requests_waiting", "waiting {{target}} {{engine}}"),
            ("ncdiag_engine_requests_running", "running {{target}} {{engine}}")]),
        ("Time to the first token", "timeseries", "s", [
            (f"histogram_quantile({q}, sum by (target, le) (rate(ncdiag_engine_time_to_first_token_seconds_bucket{{{_ON}}}[$__rate_interval])))", f"p{round(q * 100)} {{{{target}}}}")
            for q in (0.5, 0.95, 0.99)]),
        ("Time between tokens", "timeseries", "s", [
            (f"histogram_quantile({q}, sum by (target, le) (rate(ncdiag_engine_inter_token_latency_seconds_bucket{{{_ON}}}[$__rate_interval])))", f"p{round(q * 100)} {{{{target}}}}")
            for q in (0.5, 0.95)]),
        ("KV cache in use", "timeseries", "percentunit", [("ncdiag_engine_kv_cache_usage_ratio", "{{target}} {{engine}}")]),
        ("Prefix cache hits", "timeseries", "percentunit", [
            (f"rate(ncdiag_engine_prefix_cache_hits_total{{{_ON}}}[$__rate_interval]) / rate(ncdiag_engine_prefix_cache_queries_total{{{_ON}}}[$__rate_interval])", "{{target}}")]),
        ("Tokens, preemptions, requests a second", "timeseries", "short", [
            (f"sum by (target) (rate(ncdiag_engine_generation_tokens_total{{{_ON}}}[$__rate_interval]))", "generated {{target}}"),
            (f"sum by (target) (rate(ncdiag_engine_prompt_tokens_total{{{_ON}}}[$__rate_interval]))", "prompt {{target}}"),
            (f"sum by (target) (rate(ncdiag_engine_preemptions_total{{{_ON}}}[$__rate_interval]))", "preempted {{target}}"),
            (f"sum by (target, reason) (rate(ncdiag_engine_requests_finished_total{{{_ON}}}[$__rate_interval]))", "finished {{reason}} {{target}}")]),
    ]),
    ("Network", [
        ("RDMA sent", "timeseries", "bps", [(f"8 * rate(ncdiag_rdma_sent_bytes_total{{{_ON}}}[$__rate_interval])", "{{instance}} {{device}}:{{port}}")]),
        ("RDMA received", "timeseries", "bps", [(f"8 * rate(ncdiag_rdma_received_bytes_total{{{_ON}}}[$__rate_interval])", "{{instance}} {{device}}:{{port}}")]),
        ("RDMA errors in 5 minutes", "timeseries", "short", [
            (f'increase(ncdiag_rdma_errors_total{{{_ON}, kind=~"link|loss|late"}}[5m]) > 0', "{{instance}} {{device}}:{{port}} {{counter}}")]),
        ("RDMA ports", "state-timeline", "short", [("ncdiag_rdma_port_active", "{{instance}} {{device}}:{{port}}")]),
        ("Interfaces, sent and received", "timeseries", "bps", [
            (f"8 * rate(ncdiag_nic_sent_bytes_total{{{_ON}}}[$__rate_interval])", "sent {{instance}} {{device}}"),
            (f"8 * rate(ncdiag_nic_received_bytes_total{{{_ON}}}[$__rate_interval])", "received {{instance}} {{device}}")]),
        ("Interface errors in 5 minutes", "timeseries", "short", [(f"increase(ncdiag_nic_errors_total{{{_ON}}}[5m]) > 0", "{{instance}} {{device}} {{counter}}")]),
    ]),
    ("GPUs", [
        ("SM clock, share of the highest", "timeseries", "percentunit", [
            (f'ncdiag_gpu_clock_hertz{{{_ON}, clock="sm"}} / ncdiag_gpu_clock_max_hertz{{{_ON}, clock="sm"}}', "{{instance}} {{gpu}}")]),
        ("Held down", "state-timeline", "short", [(f"ncdiag_gpu_throttle{{{_ON}}} == 1", "{{instance}} {{gpu}} {{reason}}")]),
        ("Power", "timeseries", "watt", [("ncdiag_gpu_power_watts", "{{instance}} {{gpu}}"), ("ncdiag_gpu_power_limit_watts", "limit {{instance}} {{gpu}}")]),
        ("Temperature", "timeseries", "celsius", [("ncdiag_gpu_temperature_celsius", "{{instance}} {{gpu}}")]),
        ("In use", "timeseries", "percentunit", [
            ("ncdiag_gpu_utilization_ratio", "busy {{instance}} {{gpu}}"),
            (f"ncdiag_gpu_memory_used_bytes{{{_ON}}} / ncdiag_gpu_memory_total_bytes{{{_ON}}}", "memory {{instance}} {{gpu}}")]),
        ("Xid events in an hour", "timeseries", "short", [(f"increase(ncdiag_gpu_xid_total{{{_ON}}}[1h]) > 0", "{{instance}} {{gpu}} {{kind}}")]),
    ]),
    ("Nodes", [
        ("Ranks, and how many there should be", "timeseries", "short", [("ncdiag_node_ranks", "{{instance}}"), ("ncdiag_node_ranks_expected", "expected {{instance}}")]),
        ("Findings of preflight", "table", "short", [("ncdiag_finding", "")]),
        ("Sources that cannot be read", "table", "short", [("ncdiag_source_down", "")]),
    ]),
]  # fmt: skip


def dashboard() -> str:
    """JSON, ready to import."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": 24, "h": 1},
                "panels": [],
            }
        )
        top += 1
        for place, (name, kind, unit, queries) in enumerate(row):
            spot = {"x": place % 3 * _WIDTH, "y": top + place // 3 * _HEIGHT, "w": _WIDTH, "h": _HEIGHT}
            panels.append({"id": len(panels) + 1, **_panel(name, kind, unit, queries), "gridPos": spot})
        top += -(-len(row) // 3) * _HEIGHT
    return json.dumps({**_FRAME, "panels": panels}, indent=1) + "\n"


def _panel(name: str, kind: str, unit: str, queries: list[Query]) -> dict[str, Any]:
    targets = [
        _target(number, expression, legend, kind == "table") for number, (expression, legend) in enumerate(queries)
    ]
    return {
        "type": kind,
        "title": name,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "options": {},
    }


def _target(number: int, expression: str, legend: str, table: bool) -> dict[str, Any]:
    shown = expression if "{" in expression or " " in expression else f"{expression}{{{_ON}}}"
    form = {"format": "table", "instant": True} if table else {"legendFormat": legend}
    return {"refId": chr(ord("A") + number), "datasource": _SOURCE, "expr": shown, **form}


_FRAME: dict[str, Any] = {
    "title": "ncdiag",
    "uid": "ncdiag",
    "tags": ["ncdiag", "vllm", "nccl"],
    "schemaVersion": 39,
    "refresh": "30s",
    "time": {"from": "now-1h", "to": "now"},
    "templating": {
        "list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {"name": "instance", "type": "query", "datasource": _SOURCE, "query": "label_values(ncdiag_up, instance)", "includeAll": True, "multi": True,
             "allValue": ".*", "current": {"text": "All", "value": "$__all"}, "refresh": 2},
        ]
    },
}  # fmt: skip
