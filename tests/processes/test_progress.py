"""What a process that writes shows, whatever it writes to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ncdiag.hang import activity
from ncdiag.host import Host
from ncdiag.processes.look import Options
from ncdiag.processes.progress import between, look
from ncdiag.processes.sample import sample
from tests.processes.programs import running

REWRITES = """
import sys, time
with open(sys.argv[1], "wb", buffering=0) as file:
    file.write(bytes(1 << 20)); print("ready", flush=True)
    while True:
        file.seek(0); file.write(bytes(1 << 16)); time.sleep(0.01)
"""


@pytest.mark.parametrize("folder", ["disk", "memory"])
def test_a_checkpoint_that_is_written_moves(tmp_path: Path, folder: str) -> None:
    """Also over pages that are dirty already, and into a file system in memory: no other counter than wchar shows these."""
    file = tmp_path / "checkpoint" if folder == "disk" else Path(f"/dev/shm/ncdiag-test-{os.getpid()}")
    try:
        with running(REWRITES, str(file), folder=tmp_path) as (program, _):
            first = look(Host(), program.pid)
            time.sleep(0.5)
            second = look(Host(), program.pid)
    finally:
        file.unlink(missing_ok=True)
    assert first is not None and second is not None
    assert activity.moves_data(between(first, second))


WAITS = """
import subprocess, sys, threading
command = [sys.executable, "-c", sys.argv[2]]
print("ready", flush=True)
if sys.argv[1] == "waits": subprocess.run(command)
child = subprocess.Popen(command)
threading.Event().wait()
"""
COPIES = "import time\nwhile True: open('/dev/zero', 'rb').read(1 << 16); time.sleep(0.02)"
WATCHES = "import time\nwhile True: open('/proc/stat').read(); time.sleep(0.1)"


@pytest.mark.parametrize(
    ("how", "child", "moves"), [("waits", COPIES, True), ("waits", WATCHES, False), ("beside", COPIES, False)]
)
def test_who_waits_for_a_child_that_moves_data_is_slow(tmp_path: Path, how: str, child: str, moves: bool) -> None:
    """Its CPU says nothing: a download takes next to none. A child beside it, which it does not wait for, says nothing either."""
    rank = {"RANK": "0", "WORLD_SIZE": "1"}
    with running(WAITS, how, child, folder=tmp_path, environment=rank) as (program, _):
        time.sleep(0.5)
        state = sample(Host(), [program.pid], Options(window_s=1.0)).states[0]
    assert state.progress is not None
    assert activity.moves_data(state.progress) is moves, activity.rate(state.progress)
    assert ("a helper moves" in activity.rate(state.progress)) is moves


MAKES = "while :; do head -c 100000 /dev/zero > made; sleep 0.05; done"
ASKS = "while :; do cat /dev/null; sleep 0.05; done"
COMPUTES = "while :; do (i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done); done"
SHELL = """
import os, sys
print("ready", flush=True)
os.system(sys.argv[1])
"""


@pytest.mark.parametrize(("line", "moves", "busy"), [(MAKES, True, None), (ASKS, False, None), (COMPUTES, None, True)])
def test_what_a_shell_has_others_do(tmp_path: Path, line: str, moves: bool | None, busy: bool | None) -> None:
    """One short program after the other: none of them is there at both ends of a look."""
    with running(SHELL, f"cd {tmp_path}; {line}", folder=tmp_path, environment={"RANK": "0"}) as (program, _):
        time.sleep(0.3)
        state = sample(Host(), [program.pid], Options(window_s=1.0)).states[0]
    assert moves is None or activity.moves_data(state.progress) is moves, activity.rate(state.progress)
    assert busy is None or activity.busy(state.progress) is busy, activity.rate(state.progress)
