"""Whose native frames tell nothing that Python frames and the system call do not tell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ncdiag.host import Host
from ncdiag.model import RankState
from ncdiag.processes.look import Options
from ncdiag.processes.sample import sample
from ncdiag.processes.stacks import SPARED
from tests.processes.programs import running

PLACES = """
import multiprocessing, os, socket, subprocess, sys, threading, time
def sleeps(): time.sleep(600)
def reads(): os.read(os.pipe()[0], 1)
def child(): subprocess.run(["sleep", "600"])
def event(): threading.Event().wait()
def lock(): held = threading.Lock(); held.acquire(); held.acquire()
def semaphore(): held = multiprocessing.Lock(); held.acquire(); held.acquire()
def receives(): socket.socketpair()[0].recv(1)
def in_a_thread(): worker = threading.Thread(target=sleeps); worker.start(); worker.join()
print("ready", flush=True)
globals()[sys.argv[1]]()
"""


def look(place: str, folder: Path) -> RankState:
    with running(PLACES, place, folder=folder) as (program, _):
        time.sleep(0.3)
        return sample(Host(), [program.pid], Options(window_s=0.3)).states[0]


@pytest.mark.parametrize(
    ("place", "spared"),
    [
        ("sleeps", True),
        ("reads", True),
        ("child", True),
        ("event", True),
        ("lock", False),
        ("semaphore", False),
        ("receives", False),
        ("in_a_thread", False),
    ],
)
def test_native_frames_are_read_where_they_may_tell_more(tmp_path: Path, place: str, spared: bool) -> None:
    state = look(place, tmp_path)
    native = any(frame.native for thread in state.threads for frame in thread["frames"])
    assert native is not spared and (state.stack_error or "").startswith(SPARED) is spared, state.stack_error
