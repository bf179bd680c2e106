"""What was started is watched, passed on untouched, and gone afterwards, however ncdiag ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ncdiag.bringup.start import Child, StartError

ROOT = Path(__file__).parent.parent.parent
FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1] + "/grandchild", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
print("started", flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""
HOLDER = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from ncdiag.bringup.start import Child
Child([sys.executable, "-c", sys.argv[2], sys.argv[3], "600", "0"], lambda stderr, data: None)
time.sleep(600)
"""


def until(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def grandchild(folder: Path) -> int:
    assert until(lambda: (folder / "grandchild").exists() and (folder / "grandchild").read_text())
    return int((folder / "grandchild").read_text())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except FileNotFoundError:
        return True


def test_output_is_passed_on_byte_for_byte_and_the_status_is_known() -> None:
    got: dict[bool, bytes] = {False: b"", True: b""}
    lock = threading.Lock()

    def sink(stderr: bool, data: bytes) -> None:
        with lock:
            got[stderr] += data

    child = Child(["sh", "-c", r"printf 'a\r50%%\r\033[1mb\000\377\n'; printf 'oops' >&2; exit 7"], sink)
    assert until(lambda: child.over)
    assert child.stop()
    assert (child.exit, got[False], got[True]) == (7, b"a\r50%\r\x1b[1mb\0\xff\n", b"oops")


def test_what_has_left_its_session_and_its_parent_ends_too(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", FAMILY, str(tmp_path), "600", "0"], lambda stderr, data: None)
    pid = grandchild(tmp_path)
    assert child.stop()
    assert gone(pid)


def test_an_engine_that_its_script_left_behind_is_still_there_and_known(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", FAMILY, str(tmp_path), "0", "0"], lambda stderr, data: None)
    pid = grandchild(tmp_path)
    assert until(lambda: child.exit is not None)
    assert (child.exit, child.left, child.over) == (0, [pid], False)
    assert child.stop()
    assert gone(pid)


def test_a_stopped_process_ends_too(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", FAMILY, str(tmp_path), "600", "0"], lambda stderr, data: None)
    pid = grandchild(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    assert child.stop()
    assert gone(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_ncdiag(tmp_path: Path, number: signal.Signals) -> None:
    """ncdiag is ended without a chance to clean up."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(ROOT), FAMILY, str(tmp_path)])
    pid = grandchild(tmp_path)
    holder.send_signal(number)
    holder.wait(10)
    assert until(lambda: gone(pid))


def test_a_guard_that_is_killed_takes_the_command_along() -> None:
    script = (
        "import os, time\nbelow = os.fork()\nif below == 0: time.sleep(600)\nprint(below, flush=True); time.sleep(600)"
    )
    said: list[bytes] = []
    child = Child([sys.executable, "-c", script], lambda stderr, data: said.append(data))
    assert until(lambda: said)
    os.kill(child.guard, signal.SIGKILL)
    assert until(lambda: child.over)
    assert child.stop()
    assert gone(child.pid) and gone(int(said[0]))


def test_shared_memory_of_a_killed_process_is_removed_and_other_memory_is_not(tmp_path: Path) -> None:
    theirs, other = Path(f"/dev/shm/ncdiag-test-{os.getpid()}"), Path(f"/dev/shm/ncdiag-other-{os.getpid()}")
    other.write_bytes(b"x")
    script = f"import mmap, time; f = open({str(theirs)!r}, 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); f.close(); print(1, flush=True); time.sleep(600)"
    try:
        said: list[bytes] = []
        child = Child([sys.executable, "-c", script], lambda stderr, data: said.append(data))
        assert until(lambda: said)
        child.stop()
        assert not theirs.exists() and other.exists()
        assert child.removed == [str(theirs)]
    finally:
        for path in (theirs, other):
            path.unlink(missing_ok=True)


def test_a_command_that_cannot_run_is_one_sentence() -> None:
    with pytest.raises(StartError, match="cannot run /nonexistent/vllm: there is no such file"):
        Child(["/nonexistent/vllm", "serve"], lambda stderr, data: None)
