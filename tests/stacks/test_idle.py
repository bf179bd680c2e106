"""Programs without a group, run and looked at: who waits for work is not accused, and who holds a lock is named where that is written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncdiag.hang import Verdict, infer
from ncdiag.host import Host
from ncdiag.processes.locks import locked_files
from ncdiag.processes.sample import Options, sample
from tests.stacks.cases import PROGRAMS, torch_python


@contextlib.contextmanager
def idle(
    fault: str, place: Path, python: str = sys.executable, start: str = "fork", program: str = "idle"
) -> Iterator[int]:
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    with subprocess.Popen(
        [python, str(PROGRAMS / f"{program}.py")],
        env={**environ, "FAULT": fault, "START": start, "PROGRAM_DIR": str(place), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def verdict(pid: int) -> Verdict:
    return infer(sample(Host(), [pid], Options(window_s=0.8)).states)


@pytest.mark.parametrize(("fault", "kind", "said"), [
    ("pool_sleeps", "unknown", "so none of them is late"),
    ("pool_reads", "unknown", "so none of them is late"),
    ("pool_works", "healthy", "nobody is late"),
    ("pool_lost", "unknown", "a task may be lost"),
    ("manager", "unknown", "manager (idle.py:"),
    ("executor", "unknown", "so none of them is late"),
    ("executor_works", "healthy", "nobody is late"),
    ("threads", "unknown", "nobody is seen to wait for it"),
    ("thread_queue", "unknown", "nobody is seen to wait for it"),
    ("prefork", "healthy", "nobody is late"),
    ("server_with_a_request", "unknown", "holds open connections"),
    ("server_that_is_stuck", "unknown", "Handler.do_GET (idle.py:"),
    ("joins_idle_workers", "unknown", "see who has to tell them that there is no more"),
    ("lonely_loop", "healthy", "an endless loop looks the same"),
    ("full_queue", "unknown", "the reader of a queue that is full"),
])  # fmt: skip
def test_who_waits_for_work_is_not_accused(tmp_path: Path, fault: str, kind: str, said: str) -> None:
    with idle(fault, tmp_path) as pid:
        told = verdict(pid)
    assert told.kind == kind and said in told.summary and not told.culprits, told.summary


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_however_the_workers_were_started(tmp_path: Path, start: str) -> None:
    with idle("pool_sleeps", tmp_path, start=start) as pid:
        told = verdict(pid)
    assert told.kind == "unknown" and "so none of them is late" in told.summary, told.summary


def test_loaders_of_data(tmp_path: Path) -> None:
    python = torch_python()
    if python is None:
        pytest.skip("no torch: name an interpreter that has it in NCDIAG_LAB_PYTHON")
    with idle("loader", tmp_path, python) as pid:
        told = verdict(pid)
    assert told.kind == "unknown" and "so none of them is late" in told.summary, told.summary


def test_a_task_that_does_not_end_is_named_and_its_idle_neighbours_are_not(tmp_path: Path) -> None:
    with idle("pool_task", tmp_path) as pid:
        told = verdict(pid)
    assert told.kind == "hang" and told.causes[0].confidence == "possible"
    assert len(told.culprits) == 1 and told.culprits[0].waits_for == "a sleep to end", told.summary


def test_a_child_that_is_stuck_holds_up_who_joins_it(tmp_path: Path) -> None:
    with idle("joins_a_stuck_child", tmp_path) as pid:
        told = verdict(pid)
    assert told.kind == "hang" and told.causes[0].confidence == "possible" and len(told.culprits) == 1
    assert f"launcher ({told.culprits[0].node}, pid {pid}) only waits for it" in told.summary


@pytest.mark.parametrize(("fault", "kind"), [("file_lock", "flock"), ("record_lock", "fcntl lock")])
def test_the_holder_of_a_file_lock_is_named(tmp_path: Path, fault: str, kind: str) -> None:
    with idle(fault, tmp_path) as pid:
        told = verdict(pid)
    (holder,) = told.culprits
    assert f"it holds the {kind} on {tmp_path}/a.lock" in told.summary
    assert {wait.target for wait in told.waits} == {holder.name} and told.causes[0].confidence == "likely"


def test_the_holder_of_a_lock_file_that_is_polled_for(tmp_path: Path) -> None:
    python = torch_python()
    if python is None:
        pytest.skip("no engine with the filelock package: name its interpreter in NCDIAG_LAB_PYTHON")
    if any(not lock["file"].startswith(str(tmp_path)) for lock in locked_files(Host())):
        pytest.skip("another program of this machine has locked a lock file")
    with idle("polled_lock", tmp_path, python) as pid:
        told = verdict(pid)
    assert f"it holds the lock file {tmp_path}/model.lock" in told.summary and len(told.culprits) == 1, told.summary
    with (tmp_path / "model.lock").open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        with idle("polled_lock", tmp_path, python) as pid:
            told = verdict(pid)
    assert f"the only one that is locked here is {tmp_path}/model.lock, by process {os.getpid()}" in told.summary


def test_two_that_wait_for_each_other(tmp_path: Path) -> None:
    with idle("ring", tmp_path) as pid:
        told = verdict(pid)
    assert told.summary.startswith("a deadlock: ") and len(told.culprits) == 2
    assert told.causes[0].confidence == "sure"


def test_a_lock_that_a_stranger_holds(tmp_path: Path) -> None:
    with (tmp_path / "a.lock").open("w") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        with idle("file_lock", tmp_path) as pid:
            told = verdict(pid)
    assert f"which process {os.getpid()} (" in told.summary and "none of these processes" in told.summary
    assert f"ncdiag hang-dump {os.getpid()}" in told.causes[0].remedy


def test_a_lock_of_multiprocessing_has_no_known_holder(tmp_path: Path) -> None:
    with idle("shared_lock", tmp_path) as pid:
        told = verdict(pid)
    assert told.causes[0].confidence == "possible" and not told.culprits
    assert "none of them can be named" in told.summary and "written nowhere" in told.summary
    assert "does not wait for it: look there first" in told.summary


def test_a_thread_lock_that_nobody_releases(tmp_path: Path) -> None:
    with idle("own_lock", tmp_path) as pid:
        told = verdict(pid)
    assert told.causes[0].cause == "rank-stuck-outside-collective" and told.causes[0].confidence == "possible"
