"""The whole family looked at together: equal stacks, the odd one, one that ends in the middle, a zombie."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from ncdiag.host import Host
from ncdiag.model import RankState
from ncdiag.processes import stacks
from ncdiag.processes.family import FamilyError
from ncdiag.processes.look import Options
from ncdiag.processes.sample import Sampler, sample
from tests.processes.programs import CHILDREN, LOCK, running

QUICK = Options(window_s=0.3)
ZOMBIE = """
import multiprocessing, os, time
def child(): os._exit(7)
if __name__ == "__main__":
    worker = multiprocessing.get_context("fork").Process(target=child)
    worker.start()
    while open(f"/proc/{worker.pid}/stat").read().rpartition(") ")[2][0] != "Z": time.sleep(0.01)
    print("ready", worker.pid, flush=True)
    time.sleep(600)
"""


def test_all_that_is_told_of_a_program(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    environment = {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "2",
        "NCCL_DEBUG": "INFO",
        "NCCL_API_KEY": "nvapi-abcdefghijklmnopqrstuvwx",
        "UNRELATED": "x",
    }
    with (
        log.open("w") as file,
        running(LOCK, folder=tmp_path, environment=environment, stderr=file.fileno()) as (program, _),
    ):
        taken = sample(Host(), [program.pid], QUICK)
    (state,) = taken.states
    assert (state.pid, state.role, state.rank, state.world_size, state.local_rank) == (program.pid, "script", 2, 4, 2)
    assert state.node == Host().node and state.state == "S" and state.parent == os.getpid()
    assert state.settings["NCCL_DEBUG"] == "INFO" and "UNRELATED" not in state.settings
    assert state.settings["NCCL_API_KEY"] == "<redacted>"
    assert state.progress is not None and state.progress.window_s >= 0.2 and state.progress.frames_changed is False
    assert state.log_source == str(log)
    assert [frame.name for frame in state.threads[0]["frames"] if not frame.native] == ["holds_up", "<module>"]
    assert RankState.from_dict(state.as_dict()) == state


UNCLEAR = CHILDREN.replace("time.sleep(600)", "lock = multiprocessing.Lock(); lock.acquire(); lock.acquire()")
"""A semaphore: from outside, a futex that any library may sleep at."""


def test_native_frames_of_two_of_a_group_and_of_the_odd_one(tmp_path: Path) -> None:
    with running(UNCLEAR, "fork", folder=tmp_path) as (program, pids):
        states = {state.pid: state for state in sample(Host(), [program.pid], QUICK).states}
        everything = sample(Host(), [program.pid], Options(window_s=0.3, native="all")).states
        nothing = sample(Host(), [program.pid], Options(window_s=0.3, native="none")).states
    native = {
        pid
        for pid, state in states.items()
        if any(frame.native for thread in state.threads for frame in thread["frames"])
    }
    assert native == {int(pids[0]), int(pids[-1])}, "the launcher only waits for them"
    spared = [state.stack_error for pid, state in states.items() if pid not in native]
    assert all(reason and reason.startswith(stacks.SPARED) for reason in spared)
    assert not [state.stack_error for state in everything if state.stack_error]
    assert not [frame for state in nothing for thread in state.threads for frame in thread["frames"] if frame.native]


def test_a_process_that_ends_in_the_middle_is_one_line(tmp_path: Path) -> None:
    with running(CHILDREN, "fork", folder=tmp_path) as (program, pids):
        sampler = Sampler(Host(), [program.pid], Options(window_s=1.0))
        sampler.begin()
        killer = threading.Timer(0.5, os.kill, (int(pids[1]), signal.SIGKILL))
        killer.start()
        states = {state.pid: state for state in sampler.finish().states}
        killer.join()
    ended = states[int(pids[1])]
    assert ended.state in ("gone", "Z")
    assert ended.stack_error
    assert all(states[int(pid)].threads for pid in (pids[0], pids[2]))


def test_a_stopped_data_loader_is_told_once(tmp_path: Path) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29873"}
    with running(CHILDREN, "fork", folder=tmp_path, environment=environment) as (program, pids):
        os.kill(int(pids[1]), signal.SIGSTOP)
        while Path(f"/proc/{pids[1]}/stat").read_text().rpartition(") ")[2][0] != "T":
            time.sleep(0.01)
        (state,) = sample(Host(), [int(pids[0]), program.pid], QUICK).states
    (halted,) = state.halted_children
    assert halted.split(" ")[0] == pids[1]


def test_a_zombie_is_told(tmp_path: Path) -> None:
    with running(ZOMBIE, folder=tmp_path) as (program, pids):
        states = {state.pid: state for state in sample(Host(), [program.pid], QUICK).states}
    dead = states[int(pids[0])]
    assert dead.state == "Z" and "zombie" in (dead.stack_error or "")
    assert not dead.notes


def test_a_used_up_budget_is_said(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        (state,) = sample(Host(), [program.pid], Options(window_s=0.2, budget_s=0.0)).states
    assert state.stack_error == "not read: the budget of 0 s was used up; raise --budget"
    assert state.progress is not None and state.progress.cpu_s == 0


def test_dumps_in_a_row_leave_nothing_behind(tmp_path: Path) -> None:
    with running(CHILDREN, "fork", folder=tmp_path) as (program, pids):
        for round_ in range(6):
            if round_ == 1:
                before = len(os.listdir("/proc/self/fd")), threading.active_count()
            sample(Host(), [program.pid], Options(window_s=0.05))
        assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
        assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
        for pid in pids:
            assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"


def test_an_ended_pid_is_an_error() -> None:
    with pytest.raises(FamilyError):
        sample(Host(), [2**22 + 1])
