"""What is left of our sessions when we are killed (SIGKILL, the kernel out of memory): a process of its own, at the other end of a pipe, ends it.

One for this process, started with the first session; the pipe ends with us, however that is. It heeds no signal of our terminal, and has nothing
of ours open.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
import threading
from pathlib import Path

_PROGRAM = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r}); from ncdiag.fleet.sessions import keep; keep()"
CLOSE_S = 2.0
"""How long it may take to end, once we have."""


class _Keeper:
    """The other end of the pipe, as we see it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started = False
        self._lock = threading.Lock()

    def say(self, word: str) -> None:
        """One word; without effect where no process can be started, or where it is gone."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if not self._started:
                self._start()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.write(f"{word}\n".encode())

    def _start(self) -> None:
        self._started = True
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM], bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, cwd="/", start_new_session=True,
        )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(CLOSE_S)


_keeper = _Keeper()


def watch(pid: int) -> None:
    """The head of a session of ours that has just begun."""
    _keeper.say(str(pid))


def forget(pid: int) -> None:
    """Nothing is left of it."""
    _keeper.say(f"-{pid}")
