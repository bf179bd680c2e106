"""The alert rules, proved by promtool on series made for them; rules, settings, playbooks and dashboard fit together."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ncdiag.metrics.alerts import Limits, alerts
from ncdiag.metrics.dashboard import dashboard
from ncdiag.metrics.names import SERIES
from ncdiag.metrics.rules import oncall_rules, rule_file
from ncdiag.oncall.settings import read
from ncdiag.playbook.loader import exists

EXAMPLES = Path(__file__).parents[2] / "docs" / "automation"
OWN = [alert for alert in alerts(Limits()) if alert.own]


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("metrics", ["own", "others"])
def test_promtool_accepts_the_rules(metrics: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(rule_file(metrics, Limits(), "https://runbooks.example/ncdiag"))
    assert "SUCCESS" in promtool("check", "rules", str(file))


PORT = 'instance="n1", device="mlx5_0", port="1"'
GPU = 'instance="n1", gpu="3", busid="0000:07:00.0"'
ENGINE = 'instance="n1", target="http://192.0.2.1:8000/metrics", model="m", engine="0"'
TTFT = f"ncdiag_engine_time_to_first_token_seconds_bucket{{{ENGINE}, le="

Series = dict[str, str]
FIRES: list[tuple[str, str, Series, str, Series]] = [
    # alert, when it must have fired, series that fire it, when it must not have, series that do not
    ("EngineQueueLong", "6m", {f"ncdiag_engine_requests_waiting{{{ENGINE}}}": "11x20"}, "4m", {f"ncdiag_engine_requests_waiting{{{ENGINE}}}": "10x20"}),
    ("EngineKvCacheFull", "11m", {f"ncdiag_engine_kv_cache_usage_ratio{{{ENGINE}}}": "0.96x20"}, "9m", {f"ncdiag_engine_kv_cache_usage_ratio{{{ENGINE}}}": "0.95x20"}),
    ("EngineTtftSlow", "12m", {f'{TTFT}"1"}}': "0+80x20", f'{TTFT}"10"}}': "0+100x20", f'{TTFT}"+Inf"}}': "0+100x20"}, "2m",
     {f'{TTFT}"1"}}': "0+99x20", f'{TTFT}"10"}}': "0+100x20", f'{TTFT}"+Inf"}}': "0+100x20"}),
    ("RdmaLinkDowned", "5m", {f"ncdiag_rdma_link_downed_total{{{PORT}}}": "7x3 8x10"}, "3m", {f"ncdiag_rdma_link_downed_total{{{PORT}}}": "7x20"}),
    ("RdmaReceiveErrors", "5m", {f'ncdiag_rdma_errors_total{{{PORT}, counter="symbol_error", kind="link"}}': "0x3 1x10"}, "3m",
     {f'ncdiag_rdma_errors_total{{{PORT}, counter="rnr_nak_retry_err", kind="late"}}': "0+5x20"}),
    ("RdmaPacketLoss", "5m", {f'ncdiag_rdma_errors_total{{{PORT}, counter="packet_seq_err", kind="loss", layer="InfiniBand"}}': "0x3 1x10"}, "3m",
     {f'ncdiag_rdma_errors_total{{{PORT}, counter="out_of_sequence", kind="order"}}': "0+5x20"}),
    ("RocePacketLoss", "5m", {f'ncdiag_rdma_errors_total{{{PORT}, counter="packet_seq_err", kind="loss", layer="Ethernet"}}': "0x3 1x10"}, "3m",
     {f'ncdiag_rdma_errors_total{{{PORT}, counter="out_of_sequence", kind="order"}}': "0+5x20"}),
    ("RdmaCounterStuck", "11m", {f'ncdiag_rdma_counter_stuck{{{PORT}, counter="symbol_error"}}': "1x20"}, "9m",
     {f'ncdiag_rdma_counter_stuck{{{PORT}, counter="symbol_error"}}': "0x20"}),
    ("RdmaPortDown", "8m", {f"ncdiag_rdma_port_active{{{PORT}}}": "1x4 0x10"}, "4m", {f"ncdiag_rdma_port_active{{{PORT}}}": "0x20"}),
    ("GpuThrottled", "8m", {f'ncdiag_gpu_throttle{{{GPU}, reason="hw_thermal_slowdown"}}': "1x20"}, "4m", {f'ncdiag_gpu_throttle{{{GPU}, reason="sw_power_cap"}}': "1x20"}),
    ("GpuXid", "5m", {f'ncdiag_gpu_xid_total{{{GPU}, kind="hardware"}}': "0x3 1x10"}, "3m", {f'ncdiag_gpu_xid_total{{{GPU}, kind="software"}}': "0+1x20"}),
    ("RankMissing", "6m", {'ncdiag_node_ranks{instance="n1"}': "8x2 7x10", 'ncdiag_node_ranks_expected{instance="n1"}': "8x20"}, "3m",
     {'ncdiag_node_ranks{instance="n1"}': "8x20", 'ncdiag_node_ranks_expected{instance="n1"}': "8x20"}),
    ("NodeNotWatched", "6m", {'up{instance="n1", job="ncdiag"}': "1x2 0x10"}, "3m", {'up{instance="n1", job="other"}': "0x20"}),
    ("SourceNotRead", "10m", {'ncdiag_up{instance="n1", source="gpu", target=""}': "1x2 0x20"}, "6m", {'ncdiag_up{instance="n1", source="rdma", target=""}': "0x20"}),
    ("PreflightFailed", "2m", {'ncdiag_finding{instance="n1", node="n1", status="fail", cause="shm-too-small", probe="shm", device=""}': "1x9"}, "0m",
     {'ncdiag_finding{instance="n1", node="n1", status="warn", cause="clock-skew", probe="clock", device=""}': "1x9"}),
    ("PreflightOld", "140m", {'ncdiag_findings_time_seconds{instance="n1"}': "0x200"}, "119m", {'ncdiag_findings_time_seconds{instance="n1"}': "0+60x200"}),
]  # fmt: skip


def _case(name: str, series: Series, at: str, fires: bool) -> dict[str, Any]:
    test: dict[str, Any] = {"eval_time": at, "alertname": name}
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": value} for key, value in series.items()],
        "alert_rule_test": [test],
        "name": f"{name} {'fires' if fires else 'is silent'} at {at}",
    }


def _firing(rules: Path, case: dict[str, Any], folder: Path) -> str:
    """What promtool says is firing: it fails a test that expects nothing, and prints what it got."""
    file = folder / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [case]}))
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    done = subprocess.run([program, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize(("name", "fired_at", "series", "silent_at", "others"), FIRES, ids=[case[0] for case in FIRES])
def test_it_fires_when_it_should_and_is_silent_when_it_should(
    name: str, fired_at: str, series: Series, silent_at: str, others: Series, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yml"
    rules.write_text(rule_file("own", Limits(), "https://runbooks.example/ncdiag"))
    playbook = (
        "shm-too-small" if name == "PreflightFailed" else next(alert.playbook for alert in OWN if alert.name == name)
    )
    said = _firing(rules, _case(name, series, fired_at, True), tmp_path)
    assert f'alertname="{name}"' in said
    assert f'playbook="{playbook}"' in said
    assert f'runbook_url="https://runbooks.example/ncdiag/{playbook}.yaml"' in said
    assert "<no value>" not in said
    assert "error" not in said.lower().replace("errors", "").replace("rnr_nak_retry_err", "").replace(
        "symbol_error", ""
    )
    assert not _firing(rules, _case(name, others, fired_at, False), tmp_path)
    if name != "PreflightFailed":
        assert not _firing(rules, _case(name, series, silent_at, False), tmp_path)


def test_every_alert_is_proved() -> None:
    assert {case[0] for case in FIRES} == {alert.name for alert in OWN}


def test_every_alert_has_a_playbook_and_series_that_are_written() -> None:
    for alert in alerts(Limits()):
        assert exists(alert.playbook), alert.name
        assert alert.own or alert.others, alert.name
        assert _series(alert.own) <= set(SERIES), alert.name


def _series(text: str) -> set[str]:
    return {re.sub(r"(?<=_seconds)_bucket$", "", name) for name in re.findall(r"\bncdiag_\w+", text)}


def test_the_examples_are_what_is_written() -> None:
    assert (EXAMPLES / "prometheus-rules.yml").read_text() == rule_file("others", Limits())
    assert (EXAMPLES / "prometheus-rules-ncdiag.yml").read_text() == rule_file("own", Limits())
    mapping = yaml.safe_load(oncall_rules(Limits()))["rules"]
    assert {
        "labels": {"alertname": "PreflightFailed", "cause": "shm-too-small"},
        "playbook": "shm-too-small",
    } in mapping
    assert mapping.index({"labels": {"alertname": "PreflightFailed"}, "playbook": "triage"}) > len(mapping) - 10
    assert [
        {"labels": dict(rule.labels), "playbook": rule.playbook} for rule in read(EXAMPLES / "oncall.yaml").rules
    ] == mapping


def test_thresholds_can_be_set() -> None:
    text = rule_file("own", Limits(ttft_p95_s=0.5))
    assert "> 0.5" in text
    assert "runbook_url" not in text


def test_the_dashboard_shows_series_that_are_written_and_promtool_reads_its_queries(tmp_path: Path) -> None:
    shown = json.loads(dashboard())
    panels = [panel for panel in shown["panels"] if panel["type"] != "row"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]]
    assert _series(" ".join(expressions)) <= set(SERIES)
    assert len({panel["id"] for panel in shown["panels"]}) == len(shown["panels"])
    assert not any(_overlap(one["gridPos"], two["gridPos"]) for one in panels for two in panels if one is not two)
    rules = [
        {"record": f"r{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(expressions)
    ]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
    assert "SUCCESS" in promtool("check", "rules", str(tmp_path / "queries.yml"))


def _overlap(one: dict[str, int], two: dict[str, int]) -> bool:
    return (
        one["x"] < two["x"] + two["w"]
        and two["x"] < one["x"] + one["w"]
        and one["y"] < two["y"] + two["h"]
        and two["y"] < one["y"] + one["h"]
    )
