"""The command under watch: started behind a guard, its output passed on untouched, ended without a trace."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ncdiag.bringup.guard import GRACE_S
from ncdiag.host import Host
from ncdiag.processes.proc import table

GUARD = Path(__file__).with_name("guard.py")
CHUNK = 65536
Sink = Callable[[bool, bytes], None]
"""Called with (whether it is stderr, bytes)."""


class StartError(Exception):
    """The command cannot be started; one sentence."""


class Child:
    """A started command. `pid` is the command's own; everything it starts stays below `guard`."""

    def __init__(
        self,
        command: Sequence[str],
        sink: Sink,
        *,
        terminal: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = list(command)
        self.exit: int | None = None
        self.left: list[int] = []
        """Processes of it that were still there when it ended."""
        self.removed: list[str] = []
        self._sink = sink
        self._said = threading.Condition()
        self.pid = 0
        self._failed = ""
        control, write_control = os.pipe()
        self._control: int | None = write_control
        self._status, status = os.pipe()
        out, out_child = pty.openpty() if terminal else os.pipe()
        if terminal:
            _same_size(out_child)
        err, err_child = (None, out_child) if terminal else os.pipe()
        self._guard = subprocess.Popen(
            [sys.executable, "-S", "-I", str(GUARD), str(control), str(status), "--", *command],
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            stdout=out_child,
            stderr=err_child,
            pass_fds=(control, status),
            env=environment,
        )
        for descriptor in {control, status, out_child, err_child}:
            os.close(descriptor)
        self.guard = self._guard.pid
        self._threads = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._pass_on, args=(out, err), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        with self._said:
            self._said.wait_for(lambda: self.pid or self._failed, 30)
        if not self.pid:
            self.stop(0.5)
            raise StartError(self._failed or f"the guard of {command[0]} did not start")

    @property
    def over(self) -> bool:
        """Whether nothing of the command is left."""
        return self._guard.poll() is not None

    def _listen(self) -> None:
        with open(self._status, "rb") as file:
            for line in file:
                said = json.loads(line)
                with self._said:
                    self.pid = said.get("pid", self.pid)
                    self._failed = said.get("failed", self._failed)
                    self.exit = said.get("exit", self.exit)
                    self.left = said.get("left", self.left)
                    self.removed = said.get("removed", self.removed)
                    self._said.notify_all()

    def _pass_on(self, out: int, err: int | None) -> None:
        streams = {out: False} | ({err: True} if err is not None else {})
        while streams:
            for descriptor in select.select(list(streams), [], [])[0]:
                try:
                    data = os.read(descriptor, CHUNK)
                except OSError:  # a terminal whose other side is closed
                    data = b""
                if data:
                    self._sink(streams[descriptor], data)
                else:
                    os.close(descriptor)
                    del streams[descriptor]

    def _tell(self, word: bytes) -> None:
        if self._control is not None:
            with contextlib.suppress(OSError):
                os.write(self._control, word)

    def kill(self) -> None:
        """SIGKILL to all of it, now."""
        self._tell(b"kill")

    def stop(self, patience_s: float = GRACE_S + 5) -> bool:
        """Ends the command and all it started; SIGKILL after `patience_s` or the guard's grace. False when something is left."""
        self._tell(b"term")
        deadline = time.monotonic() + patience_s
        while not self.over and time.monotonic() < deadline:
            time.sleep(0.05)
        if not self.over:
            self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(5)
        if (self._guard.returncode or 0) < 0:
            self._without_guard()
        for thread in self._threads:
            thread.join(2)
        if self._control is not None:
            os.close(self._control)
            self._control = None
        return self.over

    def _without_guard(self) -> None:
        """The guard itself was killed, and the command with it: what is left of the command's session is ended."""
        for number, patience_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 2.0)):
            deadline = time.monotonic() + patience_s
            while (left := _session(self.pid)) and time.monotonic() < deadline:
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
                time.sleep(0.2)


def _session(leader: int) -> list[int]:
    """Processes of the session that `leader` made."""
    return (
        [proc.pid for proc in table(Host()).values() if proc.session == leader and proc.state not in "ZX"]
        if leader
        else []
    )


def _same_size(terminal: int) -> None:
    """Gives the command's terminal the size of this one."""
    with contextlib.suppress(OSError):
        size = os.get_terminal_size()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.lines, size.columns, 0, 0))
