"""Standard input of a process of ours that ends with it: a pair of sockets, which hold more than a pipe does, for any number of processes.

A pipe holds 64 KiB, 4 KiB where a user has many, and more of them can be made larger only by root. Source: pipe(7), pipe-user-pages-soft.
"""

from __future__ import annotations

import contextlib
import socket

SEND_S = 5.0


class Leash:
    """`stdin` is for the process, which has it from its start on: `started` closes it here."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    @property
    def stdin(self) -> int:
        return self._theirs.fileno()

    def started(self) -> None:
        self._theirs.close()

    def send(self, data: bytes, within_s: float = SEND_S) -> bool:
        """False: it is gone, or has not taken all of it in that time. Waits only where the kernel cannot hold it."""
        try:
            self._ours.settimeout(within_s)
            self._ours.sendall(data)
        except OSError:  # TimeoutError among them
            return False
        return True

    def let_go(self) -> None:
        """The process reads its end."""
        with contextlib.suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)
        self._ours.close()
