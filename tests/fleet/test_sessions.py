"""Processes that end while they are looked at, and sessions that are begun side by side."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

from ncdiag.fleet import sessions
from ncdiag.fleet.keeper import _Keeper
from ncdiag.fleet.ray import first_line


def test_sessions_begun_in_threads_are_all_ended_with_us() -> None:
    """The first of them starts the keeper's process, and the others wait for it."""
    heads = [subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(8)]
    keeper, gate = _Keeper(), threading.Barrier(len(heads))

    def begin(pid: int) -> None:
        gate.wait()
        keeper.say(str(pid))

    threads = [threading.Thread(target=begin, args=(head.pid,)) for head in heads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keeper.close()
    assert [head.wait(20) for head in heads] == [-15] * len(heads)


def test_processes_that_end_while_they_are_listed() -> None:
    short = subprocess.Popen(
        [sys.executable, "-S", "-c", "import os\nwhile True:\n    if not os.fork(): os._exit(0)\n    os.wait()"]
    )
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            found = dict(sessions._processes())
            assert short.pid in found
            for pid in found:
                sessions.born(pid)
    finally:
        short.kill()
        short.wait()
    assert sessions.born(short.pid) is None


def test_an_error_of_ray_without_words_is_told_by_its_kind() -> None:
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("\n  the actor died \nmore")) == "the actor died"
