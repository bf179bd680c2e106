"""The processes of one fan-out: each is the head of a session of its own, and what is left of a session is ended with it.

OpenSSH leaves the children of its ProxyCommand behind when it is ended, or when they are children of a shell. A master that the user's
own configuration starts (ControlPersist) leaves the session by itself, and stays; so does the ProxyCommand that it goes through.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from types import FrameType
from typing import Any

from ncdiag.fleet import keeper

GRACE_S = 1.0
"""From SIGTERM to SIGKILL."""

END_S = 0.5
"""How long a process may take to end that has closed its output."""

_PIPE = re.compile(r"(?:pipe|socket):\[\d+\]")
_MASTER = b" [mux]"
"""How the process title of OpenSSH's master ends. Source: OpenSSH, ssh.c, control_persist_detach."""


class Sessions:
    """The sessions that were begun, by the process id of their heads."""

    def __init__(self) -> None:
        self._running: dict[int, Callable[[], int | None]] = {}
        self._ending: dict[int, float] = {}
        """Heads that were told to end, and when (monotonic)."""
        self._ended: set[int] = set()
        self._told: set[int] = set()

    def began(self, pid: int, poll: Callable[[], int | None]) -> None:
        """A session with this head; `poll` gives its exit status, None while it runs."""
        self._running[pid] = poll
        keeper.watch(pid)

    def take_over(self, pid: int, when: int | None) -> None:
        """A session that another process began; `when` its head was `born`, None: it had ended by then."""
        self._running[pid] = lambda: None if when is not None and born(pid) == when else 0

    def end(self, pid: int) -> None:
        """The head is told to end and nobody waits for it here: `look` and `close` see to it, and to what is left of its session."""
        if pid not in self._running:
            return
        if self._running[pid]() is not None:
            self._over(pid)
        elif pid not in self._ending:
            _send(pid, signal.SIGTERM)
            self._ending[pid] = time.monotonic()

    def look(self) -> None:
        """Ends what is left of sessions whose head has ended: it may hold the pipes that the head was read through."""
        before = len(self._running)
        self._heads_run()
        for pid in self._running:
            if time.monotonic() > self._ending.get(pid, math.inf) + GRACE_S:
                _send(pid, signal.SIGKILL)
        if self._told or len(self._running) < before:
            self.sweep()

    def sweep(self) -> bool:
        """Tells what is left to end, the second time to die. Whether anything was left."""
        left = list(_left(self._ended))
        for pid in left:
            _send(pid, signal.SIGKILL if pid in self._told else signal.SIGTERM)
        self._told.update(left)
        return bool(left)

    def close(self) -> None:
        """Ends all heads that still run and what is left of their sessions, each within GRACE_S."""
        self._heads_run()  # a number that has a new owner is no head's
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._running:
                _send(pid, number)
            _until(lambda: not self._heads_run())
        if self.sweep():
            _until(lambda: not any(True for _ in _left(self._ended)))
            self.sweep()
        for pid in self._ended:
            keeper.forget(pid)

    def _over(self, pid: int) -> None:
        del self._running[pid]
        self._ended.add(pid)

    def _heads_run(self) -> bool:
        for pid in [pid for pid, poll in self._running.items() if poll() is not None]:
            self._over(pid)
        return bool(self._running)


def end_session(pid: int, poll: Callable[[], int | None]) -> None:
    """Ends one head, where it still runs, and what is left of its session."""
    sessions = Sessions()
    sessions.began(pid, poll)
    sessions.close()


def keep() -> None:
    """The life of the keeper's process: notes heads until the pipe ends, then ends what is left of their sessions."""
    heads: dict[int, int | None] = {}
    for line in sys.stdin.buffer:
        with contextlib.suppress(ValueError):
            number = int(line)
            if number > 0:
                heads[number] = born(number)
            else:
                heads.pop(-number, None)
    left = Sessions()
    for pid, when in heads.items():
        left.take_over(pid, when)
    left.close()


def _until(condition: Callable[[], bool]) -> None:
    """Waits for it, GRACE_S at most."""
    deadline = time.monotonic() + GRACE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def _left(sessions: Set[int]) -> Iterator[int]:
    """The processes of sessions whose head is gone, but for those that serve a master."""
    found: dict[int, list[int]] = {}
    for pid, session in _processes():
        if session in sessions:
            found.setdefault(session, []).append(pid)
    ours = {session: pids for session, pids in found.items() if session not in pids}  # else the number has a new owner
    masters = _held_by_masters() if ours else set()
    for pids in ours.values():
        if not any(_pipes(pid, (0, 1)) & masters for pid in pids):
            yield from pids


def born(pid: int) -> int | None:
    """When a process was started, in ticks since the machine was; None: it has ended. Source: proc(5), /proc/PID/stat, fields 3 and 22."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if len(words) < 20 or words[0] in (b"Z", b"X") else int(words[19])


def _processes() -> Iterator[tuple[int, int]]:
    """Process id and session of all that have not ended. Source: proc(5), /proc/PID/stat, fields 3 and 6."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
                if state not in (b"Z", b"X"):
                    yield int(name), int(session)


def _pipes(pid: int, descriptors: Iterable[int | str]) -> set[str]:
    """The pipes and sockets behind some of its descriptors; both ends of a pipe have one name."""
    found = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return {name for name in found if _PIPE.fullmatch(name)}


def _held_by_masters() -> set[str]:
    held: set[str] = set()
    for pid, _ in _processes():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                title = file.read(4096).rstrip(b"\0")
            if title.endswith(_MASTER):
                held |= _pipes(pid, os.listdir(f"/proc/{pid}/fd"))
    return held


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


class _Signalled(BaseException):
    """A signal that ends this process, once what it started is ended."""


@contextlib.contextmanager
def orderly() -> Iterator[Callable[[], None]]:
    """Within it Ctrl-C, SIGTERM and SIGHUP take effect only where what it gives is called, and behind it; once is enough.

    An exception out of a handler could come between the start of a process and the note of it, or be lost in a callback of the
    interpreter's. In other threads than the main one nothing is changed.
    """
    came: list[int] = []

    def heed() -> None:
        if came:
            raise KeyboardInterrupt if came[0] == signal.SIGINT else _Signalled(came[0])

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, note)
    try:
        yield heed
        heed()
    except _Signalled as told:
        signal.signal(told.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), told.args[0])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
