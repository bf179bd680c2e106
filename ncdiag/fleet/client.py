"""ClusterShell's workers with processes of our own making: each the head of a session, never waited for without a limit."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from ncdiag.fleet.sessions import END_S, Sessions

LAST_READS = 16
"""Reads of what is left in a pipe when its process ends: all that the kernel holds, and no end of what a mad one prints."""


def worker_class(name: str, sessions: Sessions) -> Any:
    """ClusterShell's worker `ssh` or `exec`, its processes told to `sessions`."""
    from ClusterShell.Defaults import _load_workerclass
    from ClusterShell.Worker.EngineClient import EngineClientEOF
    from ClusterShell.Worker.fastsubprocess import PIPE, STDOUT, Popen

    base = _load_workerclass(name)

    class Process(Popen):
        """Ends when it is told to, if need be by force."""

        def kill(self) -> None:
            self.send_signal(signal.SIGTERM)

        def wait(self) -> int:
            """Its status; it is ended where it does not end by itself."""
            for number in (signal.SIGTERM, signal.SIGKILL):
                deadline = time.monotonic() + END_S
                while self.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.005)
                if self.poll() is None:
                    self.send_signal(number)
            return int(super().wait())

    class Client(base.SHELL_CLASS):  # type: ignore[name-defined]
        """A process that is the head of a session."""

        def _exec_nonblock(self, commandlist: Any, shell: bool = False, env: dict[str, str] | None = None) -> Process:
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
            sessions.head_ended(self.popen.pid)

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
