"""Little real programs to look at: each prints `ready` when it stands where it is meant to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

LOCK = """
import threading
def holds_up():
    lock = threading.Lock(); lock.acquire(); print("ready", flush=True); lock.acquire()
holds_up()
"""
BUSY = """
def spins():
    print("ready", flush=True)
    while True: pass
spins()
"""
CHILDREN = """
import multiprocessing, os, sys, time
def child(connection):
    connection.send(os.getpid()); time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    pairs = [context.Pipe() for _ in range(3)]
    workers = [context.Process(target=child, args=(there,), daemon=True) for _, there in pairs]
    for worker in workers: worker.start()
    print("ready", *[here.recv() for here, _ in pairs], flush=True)
    for worker in workers: worker.join()
"""
RANK = """
import os, time
def waits_for_peers():
    print("ready", flush=True); time.sleep(600)
waits_for_peers()
"""


@contextmanager
def running(
    source: str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
    stderr: int | None = None,
) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The program and the words of its `ready` line; ended afterwards, with all its children."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "program.py"
    file.write_text(source)
    base = {
        name: value
        for name, value in os.environ.items()
        if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    }
    process = subprocess.Popen(
        [*prefix, sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env={**base, **(environment or {})},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        assert words[:1] == ["ready"], words
        yield process, words[1:]
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()
