"""Standard input of processes of ours: what nobody reads holds nobody up."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from ncdiag.fleet.leash import Leash

READER = "import sys; data = sys.stdin.buffer.read(); print(len(data))"
DEAF = "import time; time.sleep(60)"


def started(program: str) -> tuple[Leash, subprocess.Popen[bytes]]:
    leash = Leash([sys.executable, "-S", "-c", program])
    return leash, leash.process


def test_all_arrives_and_its_end_is_heard() -> None:
    leash, process = started(READER)
    with process:
        assert leash.send(b"x" * (3 << 20))
        leash.let_go()
        assert process.communicate(timeout=20) == (b"%d\n" % (3 << 20), b"")


def test_more_than_a_pipe_waits_for_one_that_does_not_read() -> None:
    """A program that is sent to a node whose ssh hangs; what comes after it is given up in time."""
    leash, process = started(DEAF)
    with process:
        began = time.monotonic()
        assert leash.send(b"x" * (128 << 10)) and time.monotonic() - began < 2
        assert not leash.send(b"x" * (16 << 20), within_s=0.2) and time.monotonic() - began < 10
        leash.let_go()
        process.kill()


def test_one_that_is_gone_is_known() -> None:
    leash, process = started("pass")
    with process:
        process.wait(20)
        assert not leash.send(b"x")
        leash.let_go()
        leash.let_go()


def test_one_that_cannot_be_started_leaves_nothing_open() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="no-such-program"):
        Leash(["/no-such-program"])
    assert len(os.listdir("/proc/self/fd")) == len(before)
