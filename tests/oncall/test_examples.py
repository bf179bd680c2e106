"""The examples of docs/automation: read by the tools they are for, and their ncdiag commands exist."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import click
import pytest
import yaml

from ncdiag import registry
from ncdiag.cli import cli
from ncdiag.oncall.settings import read
from ncdiag.playbook.loader import exists
from tests.oncall.bench import ROOT

EXAMPLES = ROOT / "docs" / "automation"
FILES = sorted(path for path in EXAMPLES.iterdir() if path.is_file())


def _commands() -> list[tuple[str, list[str]]]:
    """(file, arguments) of every ncdiag command line in the examples; lists of Kubernetes and lines of shell."""
    found = []
    for file in FILES:
        text = re.sub(r"\\\n\s*", " ", file.read_text())
        for line in text.splitlines():
            listed = re.search(r"\[ncdiag, (.*)\]", line)
            plain = re.search(r"(?:^|[ `/])ncdiag ((?:-q )?(?:preflight|playbook|oncall|collect)\b[^#`|]*)", line)
            if listed:
                found.append((file.name, [part.strip(' "') for part in listed.group(1).split(",")]))
            elif plain and not line.lstrip().startswith(("#", "|", "Description")):
                found.append((file.name, plain.group(1).split()))
    return found


@pytest.mark.parametrize(("file", "arguments"), _commands(), ids=str)
def test_the_commands_and_options_exist(file: str, arguments: list[str]) -> None:
    command: click.Command | None = cli
    context = click.Context(cli)
    words = [word for word in arguments if word != "-q"]
    while isinstance(command, click.Group) and words:
        command = command.get_command(context, words.pop(0))
    assert command is not None, arguments
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options


def test_there_are_enough_commands() -> None:
    assert len(_commands()) >= 9


def test_the_probes_they_name_exist() -> None:
    named = {word for _, words in _commands() for flag, word in itertools.pairwise(words) if flag == "--only"}
    assert named
    assert named <= set(registry.load())


def test_settings_and_rules_fit_together() -> None:
    settings = read(EXAMPLES / "oncall.yaml")
    files = EXAMPLES.glob("prometheus-rules*.yml")
    rules = [rule for file in files for rule in yaml.safe_load(file.read_text())["groups"][0]["rules"]]
    assert {rule["alert"] for rule in rules} == {rule.labels["alertname"] for rule in settings.rules}
    assert all(exists(rule.playbook) for rule in settings.rules)
    assert all(rule["labels"]["ncdiag"] == "yes" for rule in rules)


@pytest.mark.parametrize(
    "file", [path for path in FILES if path.suffix in (".yaml", ".yml")], ids=lambda path: path.name
)
def test_it_is_yaml(file: Path) -> None:
    assert list(yaml.safe_load_all(file.read_text()))


@pytest.mark.parametrize("file", [path for path in FILES if path.suffix == ".sh"], ids=lambda path: path.name)
def test_it_is_a_script_that_can_be_run(file: Path) -> None:
    subprocess.run(["bash", "-n", str(file)], check=True)
    assert os.access(file, os.X_OK)


@pytest.mark.parametrize("name", ["slurm-prolog.sh", "slurm-epilog.sh"])
@pytest.mark.parametrize(("code", "ended"), [(0, 0), (1, 1), (3, 0), (4, 0), (127, 0)])
def test_slurm_gets_a_failure_for_a_finding_only(tmp_path: Path, name: str, code: int, ended: int) -> None:
    """As slurmd calls it: without PATH. ncdiag stands only where the script says."""
    for program, says in (
        ("ncdiag", f"echo ncdiag >> {tmp_path}/calls; exit {code}"),
        ("logger", f"echo $3 >> {tmp_path}/log"),
    ):
        (tmp_path / program).write_text(f"#!/bin/bash\n{says}\n")
        (tmp_path / program).chmod(0o755)
    script = (EXAMPLES / name).read_text()
    assert script.count("/opt/ncdiag/bin") == 1 and script.count("/var/log/ncdiag") == 1
    script = script.replace("/opt/ncdiag/bin", str(tmp_path)).replace("/var/log/ncdiag", str(tmp_path / "log.d"))
    (tmp_path / name).write_text(script)
    done = subprocess.run(["/bin/bash", str(tmp_path / name)], env={"SLURM_JOB_ID": "7"}, check=False, timeout=30)
    assert done.returncode == ended
    assert "ncdiag" in (tmp_path / "calls").read_text()
    assert ("not judged" in ((tmp_path / "log").read_text() if (tmp_path / "log").exists() else "")) is (code > 3)


def test_a_pod_waits_for_what_is_wrong_and_not_for_what_cannot_be_seen(tmp_path: Path) -> None:
    pod = yaml.safe_load((EXAMPLES / "kubernetes-init-container.yaml").read_text())
    one = pod["spec"]["initContainers"][0]
    for code, ended in ((0, 0), (1, 1), (3, 0), (4, 1)):
        (tmp_path / "ncdiag").write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / "ncdiag").chmod(0o755)
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        assert subprocess.run([*one["command"], *one["args"]], env=environment, check=False).returncode == ended


@pytest.mark.parametrize(
    "file", [path for path in FILES if path.suffix in (".service", ".timer")], ids=lambda path: path.name
)
def test_systemd_accepts_the_unit(file: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert "Unknown" not in done.stderr
    assert "Failed to parse" not in done.stderr


def test_the_pagerduty_hook_sends_the_record(tmp_path: Path) -> None:
    got = []

    class Inbox(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    (tmp_path / "key").write_text("k\n")
    step = {"kind": "remedy", "text": "do it", "playbook": "disk-full", "id": "clean", "outcome": "shown"}
    record = {"title": "A file system is full", "result": "to-do", "ended": "x", "steps": [step]}
    alert = {"alert": "DiskAlmostFull", "fingerprint": "0" * 16, "labels": {"instance": "n1"}}
    inbox = HTTPServer(("127.0.0.1", 0), Inbox)
    thread = threading.Thread(target=inbox.handle_request)
    thread.start()
    environment = {
        "PAGERDUTY_ROUTING_KEY_FILE": str(tmp_path / "key"),
        "PAGERDUTY_URL": f"http://127.0.0.1:{inbox.server_port}/",
    }
    subprocess.run(
        [sys.executable, str(EXAMPLES / "pagerduty-hook.py")],
        input=json.dumps({"run": 1, "alert": alert, "record": record}),
        env=environment,
        text=True,
        check=True,
    )
    thread.join(10)
    inbox.server_close()
    assert got[0]["dedup_key"] == "ncdiag-" + "0" * 16
    assert got[0]["payload"]["severity"] == "error"
    assert got[0]["payload"]["custom_details"]["remedies"] == ["do it"]


def test_the_settings_of_the_example_are_said_to_be_right() -> None:
    command = [sys.executable, "-m", "ncdiag", "oncall", "--config", str(EXAMPLES / "oncall.yaml"), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "nothing is wrong" in done.stderr and " rules" in done.stderr
