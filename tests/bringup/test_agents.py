"""The agent that nodes are looked at with: travels, brings py-spy along, finds its processes, leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncdiag.bringup.agents import LOADER, Agent, Eyes
from ncdiag.model import RankState

from .test_start import gone, until

RANK = "import sys, time\ndef holds():\n    print('ready', flush=True)\n    time.sleep(600)\nholds()\n"
PLACE = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "198.51.100.7"}
OLDEST = sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python"))


@pytest.fixture(params=[str(path) for path in OLDEST] or [sys.executable])
def interpreter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rank() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A rank of a job, with a port of its own."""
    port = str(20000 + os.getpid() % 20000)
    process = subprocess.Popen(
        [sys.executable, "-c", RANK], stdout=subprocess.PIPE, env={**os.environ, **PLACE, "MASTER_PORT": port}
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    yield process, port
    process.kill()
    process.wait()
    process.stdout.close()


def agent(interpreter: str, port: str) -> Agent:
    return Agent(
        "n",
        [interpreter, "-S", "-I", "-c", LOADER.format(module=Agent.module)],
        {"meeting": ["198.51.100.7", port]},
        {"PATH": "/usr/bin:/bin"},
    )


def test_it_finds_the_rank_with_its_stack(interpreter: str, rank: tuple[subprocess.Popen[bytes], str]) -> None:
    process, port = rank
    eyes = Eyes([agent(interpreter, port)])
    try:
        (answer,) = eyes.look(False, {})
        states = [RankState.from_dict(state) for state in answer["states"]]
        assert [(state.pid, state.rank, state.world_size) for state in states] == [(process.pid, 1, 2)], answer
        frames = [frame.name for thread in states[0].threads for frame in thread["frames"]]
        assert "holds" in frames, (states[0].stack_error, shutil.which("py-spy"))
    finally:
        eyes.close()


def test_a_rank_that_was_killed_is_remembered_with_the_time_of_its_end(
    interpreter: str, rank: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, port = rank
    eyes = Eyes([agent(interpreter, port)])
    try:
        eyes.look(False, {})
        process.kill()
        process.wait()
        time.sleep(1.0)
        (answer,) = eyes.look(False, {})
        assert [(state["pid"], state["state"]) for state in answer["states"]] == [(process.pid, "gone")]
        assert 0.5 < answer["ended_ago_s"][str(process.pid)] < 5
    finally:
        eyes.close()


def test_it_ends_with_the_one_who_asks(interpreter: str) -> None:
    made = agent(interpreter, "1")
    made.look(False, {})
    pid = made._process.pid
    made.close()
    assert until(lambda: gone(pid))


def test_why_a_node_gives_nothing_is_said_and_said_again() -> None:
    made = Agent("n", ["sh", "-c", "echo 'ssh: connect to host n port 22: Connection refused' >&2; exit 255"], {})
    for _ in range(2):
        assert made.look(False, {}) == [{"node": "n", "error": "ssh: connect to host n port 22: Connection refused"}]
    made.close()
