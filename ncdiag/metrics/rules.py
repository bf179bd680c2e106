"""The alerts as a rule file of Prometheus, and as the settings of `ncdiag oncall`."""

from __future__ import annotations

from typing import Any

import yaml

from ncdiag.metrics.alerts import Alert, Limits, alerts
from ncdiag.playbook.loader import names

BY_CAUSE = "{{ if $labels.cause }}{{ $labels.cause }}{{ else }}%s{{ end }}"
NO_CAUSES = ("triage", "healthy", "unresolved", "slow-not-hung")
"""Playbooks that no finding of preflight leads to."""

HEADERS = {
    "own": "Written by `ncdiag metrics rules`. Scrape `ncdiag metrics serve` on every node in a job called ncdiag.",
    "others": "Written by `ncdiag metrics rules --metrics others`, over node_exporter (node_), DCGM exporter (DCGM_FI_), vLLM's own /metrics (vllm:).",
}


def rule_file(metrics: str, limits: Limits, runbooks: str = "") -> str:
    """YAML. `metrics`: `own` or `others`; `runbooks`: where playbooks are shown, `NAME.yaml` is put behind it; empty: no URL."""
    chosen = [(alert, getattr(alert, metrics)) for alert in alerts(limits)]
    rules = [_rule(alert, expression, runbooks) for alert, expression in chosen if expression]
    text = yaml.safe_dump(
        {"groups": [{"name": "ncdiag" if metrics == "own" else "ncdiag-others", "rules": rules}]},
        sort_keys=False,
        width=160,
    )
    return f"# {HEADERS[metrics]}\n{text}"


def _rule(alert: Alert, expression: str, runbooks: str) -> dict[str, Any]:
    playbook = BY_CAUSE % alert.playbook if alert.by_cause else alert.playbook
    held = {"for": alert.wait} if alert.wait else {}
    annotations = {"summary": alert.summary, "runbook": f"ncdiag playbook run {playbook}"}
    if runbooks:
        annotations["runbook_url"] = f"{runbooks.rstrip('/')}/{playbook}.yaml"
    labels = {"severity": alert.severity, "ncdiag": "yes", "playbook": playbook}
    return {"alert": alert.name, "expr": expression, **held, "labels": labels, "annotations": annotations}


def oncall_rules(limits: Limits) -> str:
    """The part `rules:` of the settings: alert -> playbook; by its cause where the alert has one, which then goes before."""
    lines = ["rules:"]
    for alert in alerts(limits):
        causes = [name for name in names() if name not in NO_CAUSES] if alert.by_cause else []
        for cause in causes:
            lines += [f"  - labels: {{alertname: {alert.name}, cause: {cause}}}", f"    playbook: {cause}"]
        lines += [f"  - labels: {{alertname: {alert.name}}}", f"    playbook: {alert.playbook}"]
    return "\n".join(lines) + "\n"
