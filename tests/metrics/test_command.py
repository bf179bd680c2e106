"""`ncdiag metrics` as people and Prometheus use it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from ncdiag.cli import cli
from ncdiag.cli.metrics import write_whole
from ncdiag.metrics.names import SERIES

ROOT = Path(__file__).parents[2]


def test_it_serves_on_loopback_and_ends_on_sigterm() -> None:
    command = [
        sys.executable,
        "-m",
        "ncdiag",
        "metrics",
        "serve",
        "--port",
        "0",
        "--ranks",
        "1",
        "--engine",
        "http://127.0.0.1:9/metrics",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "listening" in line)
        match = re.search(r"127\.0\.0\.1 port (\d+)", line)
        assert match, line
        text = urllib.request.urlopen(f"http://127.0.0.1:{match.group(1)}/metrics", timeout=20).read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert families <= {name.removesuffix("_total") for name in SERIES}
    assert 'ncdiag_up{source="engine",target="http://127.0.0.1:9/metrics"} 0.0' in text
    assert "ncdiag_engine_requests_waiting" not in text
    assert "ncdiag_node_ranks_expected 1.0" in text


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = CliRunner().invoke(cli, ["metrics", "serve", "--port", str(taken.getsockname()[1])])
    assert done.exit_code == 2
    assert "cannot listen" in done.output


def test_the_text_file_is_whole_and_readable_by_others(tmp_path: Path) -> None:
    file = tmp_path / "ncdiag.prom"
    file.write_text("old")
    done = CliRunner().invoke(cli, ["metrics", "textfile", "-o", str(file)])
    assert (done.exit_code, done.output) == (0, ""), "a timer that says something sends mail"
    assert "ncdiag_up" in file.read_text()
    assert "ncdiag_gpu_xid_total" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["ncdiag.prom"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    import click

    target = tmp_path / "folder"
    target.mkdir()
    (target / "x").touch()
    with pytest.raises(click.UsageError, match="cannot write"):
        write_whole(str(target), b"new")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("arguments", [["--engine", "file:///etc/passwd"], ["--findings", "x", "--preflight"]])
def test_wrong_options_are_refused(arguments: list[str], tmp_path: Path) -> None:
    assert CliRunner().invoke(cli, ["metrics", "textfile", "-o", str(tmp_path / "f"), *arguments]).exit_code == 2


@pytest.mark.parametrize(
    ("listen", "advice"),
    [("203.0.113.9:9100", "--listen 203.0.113.9 --port 9100"), (":9100", "--listen 0.0.0.0 --port 9100")],
)
def test_an_address_with_its_port_is_taken_apart(listen: str, advice: str) -> None:
    done = CliRunner().invoke(cli, ["metrics", "serve", "--listen", listen])
    assert done.exit_code == 2 and f"--listen {listen}: the address alone" in done.output and advice in done.output


def test_an_address_of_another_machine_is_one_line() -> None:
    done = CliRunner().invoke(cli, ["metrics", "serve", "--listen", "203.0.113.9", "--port", "0"])
    assert done.exit_code == 2 and "cannot listen on 203.0.113.9 port 0" in done.output
