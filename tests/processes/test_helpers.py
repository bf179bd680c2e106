"""What a child does that a process only waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ncdiag.host import Host
from ncdiag.processes.sample import Options, sample

from .programs import running

STARTS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]] if sys.argv[1] != "sleep" else ["sleep", "600"], stdout=subprocess.PIPE)
if sys.argv[1] != "sleep": child.stdout.readline()
print("ready", child.pid, flush=True)
child.wait()
"""
LOADS = """
import time
def load():
    print("here", flush=True)
    time.sleep(600)
load()
"""


@pytest.mark.parametrize(("program", "place"), [(LOADS, "is at load (<string>:5)"), ("sleep", "is in state S")])
def test_the_place_of_a_child(tmp_path: Path, program: str, place: str) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "2"}  # what a rank starts has its number, and is its helper
    with running(STARTS, program, folder=tmp_path, environment=rank) as (parent, (child,)):
        (state,) = [one for one in sample(Host(), [parent.pid], Options(0.6)).states if one.pid == parent.pid]
    (told,) = state.child_places
    assert told.startswith(f"{child} (") and place in told


PRINTS = """
def prints():
    print("here", flush=True)
    print("x" * 1000000)
prints()
"""


def test_a_child_whose_words_are_not_read(tmp_path: Path) -> None:
    with running(STARTS, PRINTS, folder=tmp_path, environment={"RANK": "0", "WORLD_SIZE": "2"}) as (parent, _):
        time.sleep(0.3)
        (state,) = [one for one in sample(Host(), [parent.pid], Options(0.6)).states if one.pid == parent.pid]
    assert [place for place in state.child_places if place.endswith("waits for somebody to read what it writes")]


OPENS = """
import os, sys
os.mkfifo(sys.argv[1])
print("ready", flush=True)
open(sys.argv[1])
"""


def test_the_file_that_is_opened(tmp_path: Path) -> None:
    with running(OPENS, str(tmp_path / "weights.bin"), folder=tmp_path) as (program, _):
        time.sleep(0.3)
        (state,) = sample(Host(), [program.pid], Options(0.6, native="none")).states
    assert state.call["path"] == str(tmp_path / "weights.bin")


POOL = """
import multiprocessing, os
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(abs, range(9))
        lost = pool.apply_async(os._exit, (1,))
        print("ready", flush=True)
        lost.get()
"""


def test_a_worker_that_was_forked_is_not_where_its_parent_is(tmp_path: Path) -> None:
    with running(POOL, folder=tmp_path, environment={"RANK": "0", "WORLD_SIZE": "2"}) as (parent, _):
        time.sleep(1.0)  # the pool makes another worker
        (state,) = [one for one in sample(Host(), [parent.pid], Options(0.6)).states if one.pid == parent.pid]
    assert state.child_places and all(place.endswith("waits for its next task") for place in state.child_places)


def test_who_does_not_wait_for_its_children_is_not_asked(tmp_path: Path) -> None:
    source = STARTS.replace("child.wait()", "import time; time.sleep(600)")
    with running(source, "sleep", folder=tmp_path) as (parent, _):
        states = sample(Host(), [parent.pid], Options(0.6)).states
    assert not any(state.child_places for state in states)
