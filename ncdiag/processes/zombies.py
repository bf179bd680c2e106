"""A process that ended and that its parent has not asked about: how it ended, and whose fault it is that it is still listed.

Source: /proc/PID/stat (proc(5)): field 52 is the wait status, readable by who may trace the process.
"""

from __future__ import annotations

import signal
from typing import Optional

from ncdiag.host import Host, HostError
from ncdiag.processes.proc import read_command, read_stat

_EXIT_CODE = 49
"""Place of field 52 among those after the name."""


def about(host: Host, pid: int) -> Optional[str]:
    """What is to be said when somebody asks for `pid`: that it is a zombie, how it ended, who its parent is; None where it is no zombie."""
    proc = read_stat(host, pid)
    if proc is None or proc.state not in ("Z", "X"):
        return None
    how = how_it_ended(host, pid)
    text = f"process {pid} ({proc.comm}) is a zombie (defunct): it ended" + (f" {how}" if how else "")
    parent = read_stat(host, proc.parent)
    if parent is None:
        return f"{text}; nothing of it is left to look at"
    read_command(host, parent)
    return f"{text}, and its parent, process {parent.pid} ({parent.command[:100]}), has not asked how"


def how_it_ended(host: Host, pid: int) -> str:
    """`with exit code 3`, `by signal 9 (SIGKILL)`; empty where that may not be read."""
    try:
        fields = host.read_bytes(f"/proc/{pid}/stat", 8192).decode("ascii", "replace").rpartition(") ")[2].split()
        status = int(fields[_EXIT_CODE])
    except (HostError, ValueError, IndexError):
        return ""
    number = status & 0x7F
    if not number:
        return f"with exit code {status >> 8}"
    return f"by signal {number} ({signal.Signals(number).name})" if number in _SIGNALS else f"by signal {number}"


_SIGNALS = frozenset(int(number) for number in signal.Signals)
