"""Standard input of a process of ours that ends with it: a pair of sockets, which hold more than a pipe does, for any number of processes.

A pipe holds 64 KiB, 4 KiB where a user has many, and more of them can be made larger only by root. Source: pipe(7), pipe-user-pages-soft.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Mapping, Sequence

from ncdiag.fleet import keeper

SEND_S = 5.0


class Leash:
    """Starts a process and holds it: the head of a session of its own, that ends with us too. Raises OSError where it cannot be started."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.process = subprocess.Popen(
                    list(argv),
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,  # Ctrl-C is ours to handle
                    env=None if environment is None else dict(environment),
                )
            except BaseException:
                self._ours.close()
                raise
        keeper.watch(self.process.pid)

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
