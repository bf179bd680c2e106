"""`ncdiag drill` as a person meets it: on a terminal, without one, and where the machine lacks something."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncdiag.drill import needs, remains
from tests.drill.world import NCDIAG, environment, left, record_of

lab = pytest.mark.lab
here = pytest.mark.skipif(bool(needs.missing("gloo")), reason=str(needs.missing("gloo")))
on_linux_as_root = pytest.mark.skipif(bool(needs.machine()), reason=str(needs.machine()))


def ncdiag(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NCDIAG, *arguments],
        env={**environment(f"{os.getpid()}-run"), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_list_says_what_is_missing_for_each_shape() -> None:
    done = ncdiag("drill", "--list", "--format", "json", "--python", sys.executable)
    found = json.loads(done.stdout)
    assert (done.returncode, found["schema"], found["command"]) == (0, 1, "drill")
    assert {row["shape"] for row in found["exercises"]} == {"gloo", "tp2", "nodes", "ray"}
    assert all(row["can_run"] is not bool(row["missing"]) for row in found["exercises"])
    assert not any({"name", "causes", "what"} & set(row) for row in found["exercises"])


def test_the_list_with_spoil_has_the_truth() -> None:
    found = json.loads(ncdiag("drill", "--list", "--spoil", "--shape", "gloo", "--format", "json").stdout)
    killed = next(row for row in found["exercises"] if row["name"] == "gloo-killed")
    assert (killed["causes"], killed["node"], killed["rank"]) == (["rank-died"], "b", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gloo-kiled"], "there is no exercise 'gloo-kiled'; did you mean gloo-killed?"),
        (["31"], "there is no exercise '31'; see: "),
        (["gloo-killed", "--shape", "ray"], "exercise gloo-killed has the shape gloo, not ray"),
        (["--answer", "rank-dead"], "there is no cause 'rank-dead'"),
        (["--answer", "rank-died gpu07"], "'gpu07' is no host and no rank"),
        (["--solve", "--keep"], "leave --answer and --keep out"),
        (["--python", "/no/such/python"], "/no/such/python"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(arguments: list[str], words: str) -> None:
    done = ncdiag("drill", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in " ".join(done.stderr.split())


@on_linux_as_root
def test_what_the_machine_lacks_is_said_with_the_way_out(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    done = ncdiag("drill", "--solve", "--python", str(bare))
    words = " ".join(done.stderr.split())
    assert done.returncode == 2 and f"{bare} lacks torch; NCDIAG_LAB_PYTHON has to name" in words
    done = ncdiag("drill", "--solve", NCDIAG_LAB_PYTHON=str(tmp_path / "none"))
    assert done.returncode == 2 and "No such file or directory" in done.stderr


def test_without_root_it_says_so() -> None:
    if os.geteuid() != 0:
        assert "need root" in " ".join(needs.machine())
        return
    script = "import os; os.setuid(65534); from ncdiag.drill import needs; print(*needs.machine())"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(""), capture_output=True, text=True, check=False
    )
    if "ncdiag" in done.stderr:
        pytest.skip("the checkout cannot be read without root")
    assert "hosts are network namespaces, which need root; run it with sudo" in done.stdout


@here
def test_without_a_terminal_nobody_is_asked() -> None:
    done = ncdiag("drill", "gloo-killed")
    assert done.returncode == 2
    assert "stdin is no terminal, so nobody can answer; give --solve" in " ".join(done.stderr.split())


def test_a_host_is_entered_only_where_a_drill_runs() -> None:
    done = ncdiag("drill", "--enter", "nc1q:a")
    assert done.returncode == 2 and "no drill runs here; start one" in " ".join(done.stderr.split())


@lab
@here
def test_ncdiag_solves_one() -> None:
    done = ncdiag("drill", "gloo-exception", "--solve", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["by"], found["right"], found["exit"]) == (1, "ncdiag", True, 0)
    assert (found["ncdiag"]["cause"], found["truth"]["causes"]) == ("engine-exception", ["engine-exception"])
    assert "The truth:" in done.stderr


class Terminal:
    """A drill on a terminal."""

    record: remains.Record

    def __init__(self, *arguments: str) -> None:
        self.mark = f"{os.getpid()}-{time.monotonic_ns()}"
        self.shown, self.shown_all = "", False
        self._code: int | None = None
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            os.execvpe(NCDIAG[0], [*NCDIAG, "drill", *arguments], environment(self.mark))

    def until(self, words: str, timeout_s: float = 60.0) -> str:
        """What was shown since the last time, up to these words."""
        begin, deadline = len(self.shown), time.monotonic() + timeout_s
        while words not in self.shown[begin:]:
            assert time.monotonic() < deadline, f"{words!r} is not in {self.shown[begin:]!r}"
            if select.select([self._descriptor], [], [], 0.2)[0]:
                self.shown += os.read(self._descriptor, 1 << 16).decode().replace("\r\n", "\n")
        return self.shown[begin:]

    def type(self, line: str) -> str:
        """Types a line at the prompt, and returns what is said up to the next one."""
        os.write(self._descriptor, line.encode() + b"\n")
        return self.until("drill> ")

    def last(self, line: str) -> int:
        """Types what ends it; returns the exit code."""
        os.write(self._descriptor, line.encode())
        while True:
            try:
                more = os.read(self._descriptor, 1 << 16)
            except OSError:  # closed
                more = b""
            if not more:
                self.shown_all = True
                return self.close()
            self.shown += more.decode().replace("\r\n", "\n")

    def close(self) -> int:
        """Its exit code; ended where a test has failed before its end."""
        if self._code is None:
            if not self.shown_all:
                os.kill(self.pid, signal.SIGTERM)
            os.close(self._descriptor)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


@pytest.fixture
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(*request.param)
    made.record = record_of(made.pid)
    yield made
    made.close()
    assert left(made.record, made.mark) == []


@lab
@here
@pytest.mark.parametrize("terminal", [["5388", "--seed", "1"]], indirect=True)
def test_a_person_finds_it(terminal: Terminal) -> None:
    call = terminal.until("drill> ")
    assert "The job on hosts a and b does not come up. You are on call." in call
    assert "b     10.77.0.2  no engine" in call and "rank-missing" not in call and "gloo-node-missing" not in call
    entered = subprocess.run(
        [*NCDIAG, "drill", "--enter", f"{terminal.record.prefix}:a"],
        input="hostname; ssh b hostname; cat a.out; ncdiag --version",
        env=environment(""),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert entered.stdout.split()[:2] == ["a", "b"] and "rank 0 starts" in entered.stdout, entered.stderr
    assert "ncdiag, version" in entered.stdout
    assert "Compare what the ranks were told" in terminal.type("hint")
    assert "there is no cause 'rank-mising'; did you mean:\n  rank-missing " in terminal.type("rank-mising")
    assert "'c' is no host and no rank" in terminal.type("rank-missing c")
    assert "no: that is not it" in terminal.type("rank-died")
    assert "no: the cause is right, the place is not" in terminal.type("rank-missing a")
    assert "Also:" in terminal.type("")
    assert "bootstrap-blocked-firewall" in terminal.type("causes")
    assert terminal.last("rank-missing b\n") == 0
    end = terminal.shown[terminal.shown.index("RIGHT") :]
    assert "2 wrong answers, 1 hint. The truth:" in end and "how       on b: nothing was started" in end
    assert "playbook  ncdiag playbook show rank-missing" in end
    assert "ncdiag says: likely rank-missing node b rank 1" in end and "which is right" in end


@lab
@here
@pytest.mark.parametrize("terminal", [["gloo-exception"]], indirect=True)
def test_ctrl_c_at_the_prompt_ends_it(terminal: Terminal) -> None:
    terminal.until("drill> ")
    assert terminal.last("\x03") == 130
    assert "ending: the hosts and all that runs on them are removed" in terminal.shown


@lab
@here
@pytest.mark.parametrize("terminal", [["gloo-exception", "--timeout", "1", "--format", "json"]], indirect=True)
def test_when_the_time_is_over_the_truth_is_shown(terminal: Terminal) -> None:
    assert terminal.last("") == 1
    assert "The time is over. The truth:" in terminal.shown
    found = json.loads(terminal.shown[terminal.shown.index("\n{\n") :])
    assert (found["by"], found["right"], found["answer"], found["exit"]) == ("trainee", False, None, 1)
