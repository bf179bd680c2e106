"""The other end of a pipe, or the terminal, that a process waits at in read() or write(): who could write into it, or read from it."""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from ncdiag.host import Host, HostError
from ncdiag.processes.proc import read_stat, status_fields

PIPE = re.compile(r"pipe:\[\d+\]$")
_TERMINAL = re.compile(r"/dev/(?:pts/\d+|tty\w*|console)$")
WRITES, READS = (os.O_WRONLY, os.O_RDWR), (os.O_RDONLY, os.O_RDWR)
LIMIT_S = 1.5
"""Seconds after which no further process is searched for the other end."""


def reader(host: Host, pid: int, descriptor: int) -> Dict[str, Any]:
    """Who can take what `pid` writes: `file`, and of a pipe or FIFO `readers`, each with its state letter, and `all`, as in `source`."""
    try:
        target = host.link(f"/proc/{pid}/fd/{descriptor}")
    except HostError:
        return {}
    if not (PIPE.match(target) or _is_fifo(host, target)):
        return {"file": target}
    pids, whole = _ends(host, target, READS)
    states = {pid: proc.state for pid in pids if (proc := read_stat(host, pid)) is not None}
    return {"file": target, "readers": [[pid, state] for pid, state in states.items()], "all": whole}


def source(host: Host, pid: int, descriptor: int) -> Dict[str, Any]:
    """`file`, and of a pipe or FIFO `writers` (pids that have it open to write; `pid` itself may be one) and `all` (whether every process could be
    asked); of a terminal `terminal`. Empty where the descriptor cannot be read."""
    try:
        target = host.link(f"/proc/{pid}/fd/{descriptor}")
    except HostError:
        return {}
    if _TERMINAL.match(target):
        return {"file": target, "terminal": True}
    if PIPE.match(target) or _is_fifo(host, target):
        writers, whole = _ends(host, target, WRITES)
        return {"file": target, "writers": writers, "all": whole}
    return {"file": target}


def _is_fifo(host: Host, path: str) -> bool:
    try:
        return path.startswith("/") and host.stat(path).kind == "fifo"
    except HostError:
        return False


def _ends(host: Host, target: str, modes: Sequence[int]) -> Tuple[List[int], bool]:
    found: List[int] = []
    whole, end = True, time.monotonic() + LIMIT_S
    for name in host.names("/proc"):
        if not name.isdecimal():
            continue
        if time.monotonic() > end:
            return found, False
        try:
            if any(mode(host, name, number) in modes for number in _open_as(host, name, target)):
                found.append(int(name))
        except HostError as error:
            whole = whole and error.errno in (2, 3)  # it has ended since
    return found, whole


def _open_as(host: Host, pid: str, target: str) -> Iterator[str]:
    """Descriptors that lead to `target`. Raises HostError where the process may not be asked."""
    for number in host.list(f"/proc/{pid}/fd"):
        try:
            if host.link(f"/proc/{pid}/fd/{number}") == target:
                yield number
        except HostError:
            continue


def mode(host: Host, pid: Union[int, str], descriptor: str) -> int:
    """How a process has a file open: os.O_RDONLY, os.O_WRONLY or os.O_RDWR; -1 where it may not be asked."""
    try:
        flags = status_fields(host, f"/proc/{pid}/fdinfo/{descriptor}").get("flags", "0")
    except HostError:
        return -1
    return int(flags, 8) & os.O_ACCMODE
