"""Kernel facts and progress of real programs: a pipe, a stop, a loop, a read, nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ncdiag.host import Host, Recorded
from ncdiag.processes import kernel, progress
from ncdiag.tree import MemoryTree
from tests.processes.programs import BUSY, LOCK, running
from tests.processes.test_stacks import wait_for_state

FIFO = """
import os, sys
print("ready", flush=True)
open(sys.argv[1]).read()
"""
READS = """
import sys
print("ready", flush=True)
while True:
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 16): pass
"""


def window(pid: int, seconds: float = 0.3) -> progress.Progress:
    first = progress.look(Host(), pid)
    time.sleep(seconds)
    second = progress.look(Host(), pid)
    assert first is not None and second is not None
    return progress.between(first, second)


def test_where_a_program_sleeps(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with running(FIFO, str(tmp_path / "fifo"), folder=tmp_path) as (program, _):
        wait_for_state(program.pid, "S")
        facts = kernel.look(Host(), program.pid)
        assert facts.pausable and facts.tracer is None and facts.threads[program.pid] == "S"
        assert facts.wchan or facts.syscall or facts.stack, "root sees where it sleeps" if os.geteuid() == 0 else ""


def test_a_stopped_program(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        os.kill(program.pid, signal.SIGSTOP)
        wait_for_state(program.pid, "T")
        assert not kernel.look(Host(), program.pid).pausable


def traced_by(*words: str) -> kernel.KernelFacts:
    tree = MemoryTree()
    tree.add_file("/proc/7/stat", b"7 (python) t 1 7 7 0 -1 " + b"0 " * 45)
    tree.add_file("/proc/7/status", b"Name:\tpython\nTracerPid:\t9\n")
    if words:
        tree.add_file("/proc/9/cmdline", "\0".join([*words, ""]).encode())
    return kernel.look(Recorded(tree), 7)


def test_who_only_reads_a_stack_is_no_debugger() -> None:
    assert not traced_by("gdb", "-p", "7").sampled
    assert not traced_by("strace", "-p", "7").sampled
    assert traced_by("/opt/venv/bin/py-spy", "dump", "--pid", "7").sampled
    assert traced_by("/proc/77/fd/5", "dump", "--json", "--pid", "7", "--native").sampled
    assert traced_by().sampled and traced_by().tracer == 9


def test_an_ended_program_is_gone(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        pass
    assert kernel.look(Host(), program.pid).state == "gone"
    assert progress.look(Host(), program.pid) is None


def test_a_frozen_cgroup() -> None:
    tree = MemoryTree()
    for pid, path in ((1, "/job/frozen"), (2, "/job/free"), (3, "/old")):
        line = f"5:cpu,freezer:{path}\n0::/\n" if pid == 3 else f"0::{path}\n"
        tree.add_file(f"/proc/{pid}/cgroup", line.encode())
    tree.add_file("/sys/fs/cgroup/job/frozen/cgroup.events", b"populated 1\nfrozen 1\n")
    tree.add_file("/sys/fs/cgroup/job/free/cgroup.events", b"populated 1\nfrozen 0\n")
    tree.add_file("/sys/fs/cgroup/freezer/old/freezer.state", b"FROZEN\n")
    assert [kernel.frozen(Recorded(tree), pid) for pid in (1, 2, 3, 4)] == [True, False, True, None]


def test_a_loop_burns_cpu_and_moves_nothing(tmp_path: Path) -> None:
    with running(BUSY, folder=tmp_path) as (program, _):
        moved = window(program.pid)
        assert moved.cpu_s > 0.02 and moved.rchar == 0 and moved.rss_bytes == 0


def test_reading_shows_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"w" * (4 << 20))
    with running(READS, str(tmp_path / "weights"), folder=tmp_path) as (program, _):
        assert window(program.pid).rchar > 1 << 20


def test_nothing_moves_in_a_program_that_waits(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        wait_for_state(program.pid, "S")
        moved = window(program.pid)
        assert (moved.cpu_s, moved.rchar, moved.written_bytes, moved.rss_bytes) == (0.0, 0, 0, 0)


def test_jumps_of_rss_without_page_faults_are_noise() -> None:
    first = progress.Counters(0.0, rss_bytes=1 << 20, faults=5)
    assert progress.between(first, progress.Counters(3.0, rss_bytes=2 << 20, faults=6)).rss_bytes == 0
    assert progress.between(first, progress.Counters(3.0, rss_bytes=2 << 20, faults=261)).rss_bytes == 1 << 20
