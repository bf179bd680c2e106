"""What is shipped to the nodes: complete by itself, before whatever is installed there, and clear where nothing can be started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ncdiag.bandwidth.node.words import MARK
from ncdiag.bandwidth.reach import LOADER, sources

ROOT = Path(__file__).parents[2]
PYTHONS = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python"))] or [sys.executable]
SHIPPED = json.loads(sources()[10:])


def run(python: str, *arguments: str, given: bytes = b"") -> list[dict[str, object]]:
    """What it says."""
    done = subprocess.run([python, *arguments], input=given, capture_output=True, timeout=60, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith(MARK)]
    return [json.loads(line[len(MARK) :]) for line in lines]


def test_what_is_shipped_is_the_folder_and_no_more() -> None:
    folder = "ncdiag.bandwidth.node"
    assert {name for name in SHIPPED if not name.startswith(folder)} == {"ncdiag", "ncdiag.bandwidth"}
    files = {path.stem for path in (ROOT / "ncdiag" / "bandwidth" / "node").glob("[a-z]*.py")}
    assert {name for name in SHIPPED if name.startswith(folder + ".")} == {f"{folder}.{name}" for name in files}


@pytest.mark.parametrize("python", PYTHONS)
def test_the_loader_takes_what_is_shipped_before_what_is_there(python: str) -> None:
    told = {
        **SHIPPED,
        "ncdiag.bandwidth.node.agent": "from ncdiag.bandwidth.node.words import say\ndef main(): say({'shipped': True})",
    }
    data = json.dumps(told).encode()
    assert run(python, "-S", "-c", LOADER, given=b"%010d" % len(data) + data) == [{"shipped": True}]


@pytest.mark.parametrize("python", PYTHONS)
def test_facts_that_cannot_be_had_are_said(python: str) -> None:
    """Without site-packages there is no torch."""
    script = "from ncdiag.bandwidth.node.facts import facts\nfrom ncdiag.bandwidth.node.words import say\nsay(facts())"
    assert run(python, "-S", "-c", script) == [{"error": "the node's facts could not be read"}]


@pytest.mark.parametrize("python", PYTHONS)
def test_a_rank_that_cannot_be_started_is_said(python: str) -> None:
    """The agent may open no more files, so that no pipe to a rank can be had."""
    order = {"do": "run", "job": "7", "ranks": [{"rank": 0, "store": {"host": "127.0.0.1", "port": 0}, "env": {}}]}
    script = (
        "import os, resource\nfrom ncdiag.bandwidth.node.agent import Agent\nagent = Agent()\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\nagent.order({ {**order, 'limit_s': 5.0}!r})\n"
    )
    error, ended = run(python, "-S", "-c", script)
    text = os.strerror(24)
    assert error == {"event": "error", "text": f"no process could be started: [Errno 24] {text}", "job": "7", "rank": 0}
    assert (ended["event"], ended["status"], ended["stage"], ended["late"]) == ("ended", 1, "starting", False)
