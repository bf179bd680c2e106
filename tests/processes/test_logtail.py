"""Which log a process writes to, and which lines of a shared one are its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncdiag.host import Host
from ncdiag.processes.logtail import LINES, TAIL_BYTES, Log, find, own_lines
from tests.processes.programs import LOCK, running


def test_the_file_behind_stderr_with_secrets_masked(tmp_path: Path) -> None:
    log = tmp_path / "node0.log"
    log.write_text("Loading: 10%\rLoading: 90%\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n")
    os.utime(log, (time.time() - 600, time.time() - 600))
    with log.open("a") as file, running(LOCK, folder=tmp_path, stderr=file.fileno()) as (program, _):
        found = find(Host(), program.pid)
    assert found.source == str(log) and found.error is None
    assert found.tail == ["Loading: 90%", "HF_TOKEN=<redacted>"]
    assert found.silent_s is not None and 599 < found.silent_s < 700


def test_head_and_tail_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    log.write_text("first line\n" + "filler line of no interest\n" * (TAIL_BYTES // 10) + "last line\n")
    with log.open("a") as file, running(LOCK, folder=tmp_path, stderr=file.fileno()) as (program, _):
        found = find(Host(), program.pid)
    assert found.head[0] == "first line" and found.tail[-1] == "last line"
    assert sum(len(line) + 1 for line in found.tail) <= TAIL_BYTES
    assert len(own_lines(found, [1], False)) == LINES


@pytest.mark.skipif(shutil.which("tee") is None, reason="needs tee")
def test_the_file_behind_a_pipe_to_tee(tmp_path: Path) -> None:
    code = "import sys, time; print('to the pipe', file=sys.stderr, flush=True); time.sleep(60)"
    tee = subprocess.Popen(["tee", str(tmp_path / "tee.log")], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    program = subprocess.Popen([sys.executable, "-c", code], stdout=tee.stdin, stderr=tee.stdin)
    try:
        deadline = time.monotonic() + 10
        while not (tmp_path / "tee.log").exists() or not (tmp_path / "tee.log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = find(Host(), program.pid, [tee.pid, os.getpid()])
        assert (found.source, found.tail) == (str(tmp_path / "tee.log"), ["to the pipe"])
        alone = find(Host(), program.pid)
        assert "it writes to a pipe" in (alone.error or "")
    finally:
        for process in (program, tee):
            process.kill()
            process.wait()
        tee.stdin.close()  # type: ignore[union-attr]


def test_lines_of_a_shared_log_are_told_apart() -> None:
    log = Log(
        "serve.log",
        tail=[
            "banner",
            "(APIServer pid=10) starting",
            "(EngineCore_DP0 pid=11) Initializing a V1 LLM engine",
            "(Worker_TP0 pid=12) Loading",
            "  continued",
            "node:13:99 [0] NCCL INFO Init",
            "(VllmWorker rank=1 pid=13) Loading",
            "(RayWorkerProc pid=14, ip=192.0.2.8) x",
        ],
    )
    assert own_lines(log, [12, None], True) == ["(Worker_TP0 pid=12) Loading", "  continued"]
    assert own_lines(log, [7013, 13], True) == ["node:13:99 [0] NCCL INFO Init", "(VllmWorker rank=1 pid=13) Loading"]
    assert own_lines(log, [14], True) == ["(RayWorkerProc pid=14, ip=192.0.2.8) x"]
    assert len(own_lines(log, [1], False)) == 8
    assert own_lines(Log("plain.log", tail=["one", "two"]), [1], True) == ["one", "two"], (
        "without marks it is everybody's"
    )
