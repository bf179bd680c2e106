"""A real Prometheus and a real Alertmanager fire a real alert into `ncdiag oncall`, on loopback; promtool reads the rules."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.oncall.bench import ROOT, TOKEN, Server

EXAMPLES = ROOT / "docs" / "automation"

PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}
scrape_configs: []
"""
RULES = """
groups:
  - name: demo
    rules:
      - {alert: ShmFull, expr: 'vector(1) > 0', labels: {severity: page, instance: "192.0.2.7:9100"}}
"""
ALERTMANAGER = """
route: {{receiver: ncdiag, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers:
  - name: ncdiag
    webhook_configs:
      - url: http://127.0.0.1:{oncall}/alerts
        send_resolved: false
        http_config: {{authorization: {{credentials_file: {token}}}}}
"""


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(*names: str) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"{names[0]} is not installed (Debian packages prometheus and prometheus-alertmanager)")
    return found


@pytest.mark.lab
def test_a_real_alert_is_answered(tmp_path: Path) -> None:
    prometheus = _program("prometheus")
    alertmanager = _program("prometheus-alertmanager", "alertmanager")
    server = Server(tmp_path)
    ports = {"alertmanager": _port(), "prometheus": _port()}
    (tmp_path / "am.yml").write_text(ALERTMANAGER.format(oncall=server.port, token=tmp_path / "token"))
    (tmp_path / "prom.yml").write_text(PROMETHEUS.format(**ports))
    (tmp_path / "rules.yml").write_text(RULES)
    commands = [
        [
            alertmanager,
            "--config.file=am.yml",
            "--storage.path=am",
            "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
        ],
        [
            prometheus,
            "--config.file=prom.yml",
            "--storage.tsdb.path=tsdb",
            "--rules.alert.resend-delay=1s",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        ],
    ]
    running = []
    try:
        with (tmp_path / "log").open("wb") as log:
            running = [subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) for command in commands]
        run = server.wait_for(1, limit_s=60)[0]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{(tmp_path / 'log').read_text()[-3000:]}") from None
    finally:
        for process in running:
            process.terminate()
            process.wait(20)
        server.stop()
    assert (run["alert"], run["playbook"], run["state"]) == ("ShmFull", "shm-too-small", "done")
    assert TOKEN not in server.log


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*rules*.y*ml")), ids=lambda path: path.name)
def test_promtool_accepts_the_example_rules(file: Path) -> None:
    done = subprocess.run(
        [_program("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_amtool_accepts_the_example_of_alertmanager() -> None:
    file = str(EXAMPLES / "alertmanager.yml")
    done = subprocess.run([_program("amtool"), "check-config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
