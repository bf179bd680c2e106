"""`ncdiag hang-dump` and `ncdiag bundle show` as a person calls them, on real little engines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes.programs import CHILDREN, LOCK, RANK, running

ROOT = Path(__file__).parent.parent.parent


def ncdiag(*arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(
        [*prefix, sys.executable, "-m", "ncdiag", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=60,
        check=False,
    )


def two_ranks(stack: ExitStack, folder: Path, port: int) -> list[int]:
    return [
        stack.enter_context(
            running(
                RANK,
                folder=folder / str(rank),
                environment={
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
            )
        )[0].pid
        for rank in (0, 1)
    ]


def test_a_stopped_rank_is_named_and_so_it_is_from_its_bundle(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pids = two_ranks(stack, tmp_path, 29881)
        os.kill(pids[1], signal.SIGSTOP)
        saved = str(tmp_path / "saved.tar.gz")
        live = ncdiag("hang-dump", str(pids[0]), "--window", "0.3", "--format", "json", "--bundle", saved)
        assert Path(f"/proc/{pids[1]}/stat").read_text().rpartition(") ")[2][0] == "T", (
            "still stopped, not started again"
        )
    told = json.loads(live.stdout)
    assert live.returncode == told["exit"] == 1, live.stderr
    assert (told["schema"], told["command"], told["verdict"]) == (1, "hang-dump", "hang")
    assert told["causes"][0]["cause"] == "rank-stopped" and told["causes"][0]["where"]["rank"] == 1
    for key in ("cause", "confidence", "where", "summary", "evidence", "secondary", "remedy", "playbook"):
        assert key in told["causes"][0]
    rows = {row["rank"]: row for row in told["ranks"]}
    assert rows[1]["state"] == "stopped" and rows[1]["pid"] == pids[1]
    assert {"rank", "node", "pid", "state", "stage", "since_s", "waits_for"} <= set(rows[0])
    assert "communicators" in told and "next" in told
    assert f"ncdiag diagnose {saved}" in live.stderr
    elsewhere = ncdiag("bundle", "show", saved, "--format", "json")
    assert json.loads(elsewhere.stdout) == told and elsewhere.returncode == 1
    diagnosed = ncdiag("diagnose", saved, "--format", "json")
    assert json.loads(diagnosed.stdout) == {**told, "command": "diagnose"} and diagnosed.returncode == 1


def test_the_verdict_comes_first_in_the_text(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pids = two_ranks(stack, tmp_path, 29882)
        os.kill(pids[0], signal.SIGSTOP)
        shown = ncdiag("hang-dump", str(pids[1]), "--window", "0.3").stdout
    first, *rest = shown.splitlines()
    assert first.startswith("HANG") and "rank 0" in first and "stopped" in first
    assert any(line.split()[:2] == ["►", "0"] for line in rest)
    assert any("waits_for_peers" in line for line in rest)
    assert "\x1b" not in shown


def test_an_ended_pid_is_one_line(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        pass
    done = ncdiag("hang-dump", str(program.pid))
    assert done.returncode == 2 and f"no process {program.pid} here: it has ended" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", ["absent.tar.gz", "README.md"])
def test_what_is_no_bundle_is_one_line(path: str) -> None:
    done = ncdiag("bundle", "show", path)
    assert done.returncode == 2 and path in done.stderr and "Traceback" not in done.stderr


def test_quick_and_frugal_for_four_processes(tmp_path: Path) -> None:
    with running(CHILDREN, "fork", folder=tmp_path) as (program, pids):
        started = time.monotonic()
        done = ncdiag("hang-dump", str(program.pid), "--format", "json", "--window", "1")
        took = time.monotonic() - started
        states = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] for pid in pids]
    assert len(json.loads(done.stdout)["ranks"]) == 4
    assert took < 10 and states == ["S", "S", "S"]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to give up rights"
)
def test_without_permission_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        done = ncdiag(
            "hang-dump",
            str(program.pid),
            "--window",
            "0.2",
            "--format",
            "json",
            prefix=("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"),
        )
    told = json.loads(done.stdout)
    assert done.returncode == told["exit"] == 3 and told["verdict"] == "unknown"
    assert told["causes"][0]["cause"] == "ptrace-denied"
    assert "docker: --cap-add SYS_PTRACE" in told["causes"][0]["evidence"][0]["text"]


def test_what_is_only_possible_is_no_alarm(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        done = ncdiag("hang-dump", str(program.pid), "--window", "0.3")
        told = ncdiag("hang-dump", str(program.pid), "--window", "0.3", "--format", "json")
    assert done.returncode == told.returncode == json.loads(told.stdout)["exit"] == 3, done.stderr
    assert done.stdout.startswith("HANG?") and "possible · rank-stuck-outside-collective" in done.stdout


@pytest.mark.parametrize("pid", ["engine", "-", "0", "1e3"])
def test_what_is_no_pid_is_told_how_to_find_one(pid: str) -> None:
    done = ncdiag("hang-dump", pid)
    assert done.returncode == 2 and "is no pid; find one: pgrep" in done.stderr


LEAVES = """
import os, time
child = os.fork()
if child == 0:
    os._exit(3)
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("ready", child, flush=True)
time.sleep(600)
"""


def test_a_zombie_is_called_one_with_its_end_its_parent_and_what_is_looked_at(tmp_path: Path) -> None:
    with running(LEAVES, folder=tmp_path) as (parent, (child,)):
        told = ncdiag("hang-dump", "--window", "0.3", "--format", "json", child)
        shown = ncdiag("hang-dump", "--window", "0.3", child)
    (text,) = json.loads(told.stdout)["asked"]
    assert f"process {child} (" in text and "is a zombie (defunct): it ended with exit code 3" in text, text
    assert f"its parent, process {parent.pid} (" in text and f"What follows is about process {parent.pid}" in text
    assert " ".join(shown.stdout.split()).startswith(text)
    assert "is a zombie (ended with exit code 3)" in json.loads(told.stdout)["summary"]
