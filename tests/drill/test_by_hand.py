"""`python -m tests.lab`: hosts to play with, and its way to the fault matrix."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ncdiag.drill import needs, remains
from tests.drill.world import NCDIAG, ROOT, environment, left, record_of

LAB = [sys.executable, "-m", "tests.lab"]


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [*LAB, *arguments]
    return subprocess.run(argv, env=environment(""), cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["up", "--hosts", "9"], "the shape gloo takes 1 to 8 hosts, not 9"),
        (["up", "--hosts", "1", "--shape", "nodes-pp2"], "the shape nodes-pp2 takes 2 to 8 hosts, not 1"),
        (["fault", "gloo-kiled"], "there is no exercise 'gloo-kiled'; did you mean gloo-killed?"),
        (["down"], "invalid choice: 'down'"),
    ],
)
def test_a_mistake_says_what_would_be_right(arguments: list[str], words: str) -> None:
    done = lab(*arguments)
    assert done.returncode == 2 and words in " ".join(done.stderr.split())


def test_the_matrix_is_a_part_of_it() -> None:
    assert "--table" in lab("matrix", "--help").stdout


@pytest.fixture
def three() -> Iterator[remains.Record]:
    """Three hosts; nothing is left of them when Ctrl-C has ended it."""
    mark = f"{os.getpid()}-three"
    argv = [*LAB, "up", "--hosts", "3"]
    process = subprocess.Popen(argv, env=environment(mark), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    record = record_of(process.pid)
    assert process.stdout and process.stderr
    while b"--enter" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
    yield record
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130 and left(record, mark) == []


@pytest.mark.lab
@pytest.mark.skipif(bool(needs.missing("gloo")), reason=str(needs.missing("gloo")))
def test_hosts_can_be_entered_reach_each_other_and_have_a_start_script(three: remains.Record) -> None:
    assert [host["address"] for host in three.hosts.values()] == ["10.77.0.1", "10.77.0.2", "10.77.0.3"]
    done = subprocess.run(
        [*NCDIAG, "drill", "--enter", f"{three.prefix}:c"],
        input="hostname; ssh a hostname; ssh 10.77.0.2 hostname; cat start-c",
        env=environment(""),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split()[:3] == ["c", "a", "b"], done.stderr
    assert "export RANK=2\n" in done.stdout and "export WORLD_SIZE=3\n" in done.stdout
