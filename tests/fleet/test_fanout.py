"""The fan-out with real processes of this machine: bounded time, nothing left behind, no words of the library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ncdiag.fleet.base import FleetError
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.remote import Answer
from ncdiag.fleet.sessions import Sessions, born

ROOT = Path(__file__).parent.parent.parent
PROGRAM = """
import sys
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.sessions import Sessions, born
names = [f"n{number}" for number in range(int(sys.argv[2]))]
for node, answer in fan_out(names, sys.argv[1], b"x" * (1 << 20), float(sys.argv[3]), lambda node, probe: None).items():
    print(node, answer.rc)
"""


def ran(command: str, nodes: int = 1, timeout_s: float = 20.0) -> tuple[dict[str, Answer], float]:
    started = time.monotonic()
    answers = fan_out([f"n{number}" for number in range(nodes)], command, b"", timeout_s, lambda node, probe: None)
    return answers, time.monotonic() - started


def alive(mark: str) -> list[str]:
    """Command lines of the processes that carry this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark in line and state != "Z" and folder.name != str(os.getpid()):
            found.append(line)
    return found


def gone(mark: str, within_s: float = 3.0) -> bool:
    deadline = time.monotonic() + within_s
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(mark)


@pytest.fixture
def mark() -> str:
    """A number of seconds to sleep that nobody else sleeps."""
    return f"98{time.time_ns() % 10**9:09d}"


@pytest.mark.parametrize("command, rc", [
    ("sleep {} & echo hello", 0),
    ("sleep {} & echo hello; exit 255", 255),
    ("(trap '' TERM HUP; sleep {}) & echo hello", 0),
    ("sh -c 'sleep {} & sleep {}' & echo hello", 0),
])  # fmt: skip
def test_children_that_hold_the_pipes_end_soon_after_their_head(command: str, rc: int, mark: str) -> None:
    answers, took = ran(command.format(mark, mark), timeout_s=20)
    assert (answers["n0"].rc, answers["n0"].out) == (rc, "hello")
    assert took < 6 and gone(mark)


@pytest.mark.parametrize("command, rc", [
    ("sleep {}", None), ("sleep {}; true", None), ("trap '' TERM; sleep {}; sleep {}", None), ("kill -STOP $$; sleep {}", None),
])  # fmt: skip
def test_what_does_not_end_is_ended_with_its_children(command: str, rc: int | None, mark: str) -> None:
    answers, took = ran(command.format(mark, mark), timeout_s=1)
    assert answers["n0"].rc is rc and took < 5 and gone(mark)


def test_one_that_closes_its_output_and_stays_holds_nobody_up(mark: str) -> None:
    answers, took = ran(f"echo hello; exec >&- 2>&-; sleep {mark}", nodes=3)
    assert took < 6 and gone(mark)
    assert {(answer.rc, answer.out) for answer in answers.values()} == {(0, "hello")}


@pytest.mark.parametrize("source", ["/dev/zero", "/dev/urandom"])
def test_one_that_prints_without_end_is_cut_off(source: str, mark: str) -> None:
    answers, took = ran(f"cat {source}; sleep {mark}", timeout_s=60)
    assert answers["n0"] == Answer(255, "", "it printed more than 16 MiB") and took < 20 and gone(mark)


def test_one_that_heeds_sigterm_as_ssh_does_is_late_all_the_same(mark: str) -> None:
    answers, _ = ran(f"trap 'exit 255' TERM; sleep {mark} & wait", timeout_s=1)
    assert answers["n0"].rc is None


def test_the_reason_is_read_even_at_the_last_moment(mark: str) -> None:
    answers, _ = ran(f"echo reason >&2; printf unfinished >&2; exec 2>&-; sleep {mark}", timeout_s=1)
    assert answers["n0"].err.splitlines() == ["reason", "unfinished"]


def test_silent_nodes_keep_no_others_waiting(mark: str) -> None:
    """4 waves of 64 that take their time one after the other would take 20 s."""
    answers, took = ran(f"sleep {mark}", nodes=200, timeout_s=5)
    assert took < 16 and {answer.rc for answer in answers.values()} == {None} and gone(mark)


def test_a_limit_of_the_fanout_is_never_passed(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCDIAG_FANOUT", "2")
    _, took = ran(f"sleep {mark}", nodes=6, timeout_s=1)
    assert 3 <= took < 18, "three waves, each at most its limit and 5 s"


@pytest.mark.parametrize("told", ["0", "-1", "many", "", "1.5"])
def test_a_fanout_that_is_none(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCDIAG_FANOUT", told)
    with pytest.raises(FleetError, match=f"NCDIAG_FANOUT={told}: a number from 1 on is wanted"):
        ran("true")


def started(command: str, nodes: int, timeout_s: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, command, str(nodes), str(timeout_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_by_a_signal(number: signal.Signals, mark: str) -> None:
    process = started(f"sh -c 'trap \"\" INT HUP; sleep {mark}; true'", 20, 60)
    until(lambda: len(alive(f"sleep {mark}")) >= 40)
    begun = time.monotonic()
    process.send_signal(number)
    _, error = process.communicate(timeout=10)
    assert time.monotonic() - begun < 5 and gone(mark, 0.5)
    if number is signal.SIGINT:
        assert "KeyboardInterrupt" in error
    else:
        assert process.returncode == -number, "the signal takes its usual effect"


def test_two_signals_at_once_leave_nothing_either(mark: str) -> None:
    process = started(f"trap '' TERM; sleep {mark}; sleep {mark}", 20, 60)
    until(lambda: len(alive(f"sleep {mark}")) >= 20)
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    process.communicate(timeout=20)
    assert gone(mark)


def test_the_library_says_nothing_of_broken_pipes() -> None:
    process = started("exec <&-; echo short; exit 3", 20, 20)
    out, error = process.communicate(timeout=30)
    assert error == "" and {line.split()[1] for line in out.splitlines()} == {"3"}


@pytest.mark.parametrize("after", [1, 5, 20])
def test_a_signal_while_processes_are_started_loses_none(after: int, mark: str) -> None:
    process = started(f"trap '' INT HUP; sleep {mark}; true", 60, 60)
    until(lambda: len(alive(f"sleep {mark}")) >= after)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM and gone(mark, 0.5)


def test_nothing_is_left_when_it_is_killed(mark: str) -> None:
    """Nothing of it can act any more: what is at the other end of the pipe does, for a child that minds neither its pipes nor SIGTERM, too."""
    process = started(f"trap '' TERM HUP; sh -c 'trap \"\" TERM HUP; sleep {mark}; true' & wait", 5, 60)
    until(lambda: len(alive(f"sleep {mark}")) >= 10)
    process.kill()
    assert gone(mark, 6.0)
    assert process.wait() == -signal.SIGKILL
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def test_who_was_started_by_another_process_is_known_by_its_birth(mark: str) -> None:
    with subprocess.Popen(["sleep", mark], start_new_session=True) as other:
        until(lambda: bool(alive(f"sleep {mark}")))
        mistaken, right = Sessions(), Sessions()
        when = born(other.pid)
        assert when is not None
        mistaken.take_over(other.pid, when - 1)
        mistaken.close()
        time.sleep(0.1)
        assert other.poll() is None, "the number has a new owner"
        right.take_over(other.pid, when)
        right.close()
        assert other.wait(5) == -signal.SIGTERM
    assert born(other.pid) is None
