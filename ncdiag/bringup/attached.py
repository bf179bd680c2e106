"""An engine that runs already: what it was started with."""

from __future__ import annotations

import os

from ncdiag.bringup import command
from ncdiag.host import Host, HostError


class Attached:
    """An engine that runs already; it is looked at and never touched."""

    exit: int | None = None
    """Its status, where it was seen between its end and its parent's notice of that; else only its parent knows."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid

    @property
    def over(self) -> bool:
        if self._pid is None:
            return False
        try:
            fields = Host().read_bytes(f"/proc/{self._pid}/stat").rpartition(b")")[2].split()
        except HostError:
            return True
        if fields[0] not in (b"Z", b"X"):
            return False
        if os.geteuid() == 0:  # to others the kernel says 0 whatever it was
            self.exit = os.waitstatus_to_exitcode(int(fields[49]))
        return True


def environment(pid: int) -> dict[str, str]:
    """The environment of a process as it is, secrets and all: it goes to the bridge to Ray only, which needs its token."""
    try:
        content = Host().read_bytes(f"/proc/{pid}/environ").decode("utf-8", "surrogateescape")
    except HostError:
        return dict(os.environ)
    return dict(item.split("=", 1) for item in content.split("\0") if "=" in item)


def engine_of(pid: int) -> command.Engine:
    """What the command line of a running process says. Raises HostError."""
    argv = Host().read_bytes(f"/proc/{pid}/cmdline").decode("utf-8", "surrogateescape").split("\0")
    return command.read([part for part in argv if part], environment(pid))
