"""ClusterShell's workers with processes of our own making: each the head of a session, never waited for without a limit."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from ncdiag.fleet.sessions import END_S, Sessions

MAX_LINE_BYTES = 1 << 20
"""What is taken for a line where none ends: each piece that comes is copied to what is there of its line."""

LAST_READS = 16
"""Reads of what is left in a pipe when its process ends: all that the kernel holds, and no end of what a mad one prints."""


def worker_class(name: str, sessions: Sessions, heed: Callable[[], None]) -> Any:
    """ClusterShell's worker `ssh` or `exec`, its processes told to `sessions`. `heed`: as `orderly` gives it."""
    from ClusterShell.Defaults import _load_workerclass
    from ClusterShell.Worker.EngineClient import EngineClientEOF
    from ClusterShell.Worker.fastsubprocess import PIPE, STDOUT, Popen

    base = _load_workerclass(name)

    class Process(Popen):
        """Never waited for without a limit; what does not end is the sessions' to end."""

        told = False

        def kill(self) -> None:
            self.told = True
            sessions.end(self.pid)

        def wait(self) -> int:
            """Its status, SIGTERM's where it was told to end; 0 where it has closed its output and goes on."""
            deadline = time.monotonic() + (0 if self.told else END_S)
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            status = self.poll()
            sessions.end(self.pid)
            return -signal.SIGTERM if self.told else int(status or 0)

    class Client(base.SHELL_CLASS):  # type: ignore[name-defined]
        """A process that is the head of a session."""

        def _exec_nonblock(self, commandlist: Any, shell: bool = False, env: dict[str, str] | None = None) -> Process:
            heed()
            process = Process(
                commandlist, bufsize=0, stdin=PIPE, stdout=PIPE, stderr=PIPE if self._stderr else STDOUT, shell=shell,
                env={**os.environ, **env} if env else None, preexec_fn=os.setsid,
            )  # fmt: skip
            sessions.began(process.pid, process.poll)
            if self._stderr:
                self.streams.set_reader(self.worker.SNAME_STDERR, process.stderr)
            self.streams.set_reader(self.worker.SNAME_STDOUT, process.stdout)
            self.streams.set_writer(self.worker.SNAME_STDIN, process.stdin, retain=False)
            return process

        def _close(self, abort: bool, timeout: bool) -> None:
            if timeout:
                self._read_the_rest()
            super()._close(abort, timeout)

        def _handle_read(self, stream: str) -> None:
            super()._handle_read(stream)
            unfinished = self.streams[stream].rbuf if stream in self.streams else b""
            if len(unfinished) > MAX_LINE_BYTES:
                self.streams[stream].rbuf = b""
                self._on_nodeset_msgline(self.key, unfinished, stream)

        def _read_the_rest(self) -> None:
            """What came while others were served: the reason, mostly."""
            for stream in (self.worker.SNAME_STDERR, self.worker.SNAME_STDOUT):
                try:
                    for _ in range(LAST_READS if stream in self.streams else 0):
                        self._handle_read(stream)
                except (BlockingIOError, EngineClientEOF):
                    self._flush_read(stream)

    class Worker(base):  # type: ignore[valid-type,misc]
        SHELL_CLASS = Client

    return Worker
