"""The system call that a thread sleeps in: which one it is, and how long it may last at most.

Source: /proc/PID/syscall (proc(5)): number and arguments; time limits that are behind a pointer are read from /proc/PID/mem, which nobody is
paused for. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
"""

from __future__ import annotations

import os
import platform
import struct
import time
from typing import Any, Dict, List, Optional

from ncdiag.host import Host, HostError

_X86 = {
    0: "read",
    1: "write",
    2: "open",
    7: "poll",
    17: "pread64",
    23: "select",
    34: "pause",
    35: "nanosleep",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    47: "recvmsg",
    61: "wait4",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    202: "futex",
    219: "restart_syscall",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    270: "pselect6",
    271: "ppoll",
    281: "epoll_pwait",
    288: "accept4",
}
_GENERIC = {
    22: "epoll_pwait",
    25: "fcntl",
    32: "flock",
    56: "openat",
    63: "read",
    64: "write",
    67: "pread64",
    72: "pselect6",
    73: "ppoll",
    82: "fsync",
    95: "waitid",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    128: "restart_syscall",
    133: "rt_sigsuspend",
    137: "rt_sigtimedwait",
    202: "accept",
    203: "connect",
    206: "sendto",
    207: "recvfrom",
    212: "recvmsg",
    242: "accept4",
    260: "wait4",
}
NUMBERS = {"x86_64": _X86, "aarch64": _GENERIC, "riscv64": _GENERIC}
_RELATIVE = {"select": 4, "pselect6": 4, "nanosleep": 0, "ppoll": 2, "rt_sigtimedwait": 2}
"""Call -> place of the argument that points to how long it may last; a null pointer: without end."""
_MILLISECONDS = {"poll": 2, "epoll_wait": 3, "epoll_pwait": 3}
"""Call -> place of the argument that says so itself; negative: without end."""
_ENDLESS = ("pause", "rt_sigsuspend", "read", "pread64", "write", "wait4", "waitid", "flock", "accept", "accept4")
_SLEEPS, _SELECTS = ("nanosleep", "clock_nanosleep"), ("select", "pselect6")
_ABSTIME = 1
_FUTEX_WAIT_BITSET, _FUTEX_REALTIME = 9, 256
_AT_ONE = ("read", "pread64", "write", "recvfrom", "recvmsg", "accept", "accept4")
_OPENS = {"open": 0, "openat": 1}
"""Call -> place of the argument that points to the name of a file."""
PATH = 1024
"""Bytes of a file name that are looked at."""
MOST = 1024
"""Descriptors of one call that are looked at."""
RESTARTED = "restart_syscall"
"""The call goes on after a pause, as one to read its stack is; which one it is does not stand there any more."""


def read(host: Host, pid: int, tid: Optional[int] = None) -> Dict[str, Any]:
    """`name`, and what is known of `descriptors` (that it waits at), `path` (of a file that is opened), `left_s` (seconds that it lasts at most; of a limit that is relative, those
    that it lasts from its beginning), `endless` (True: without a limit), `sleeps` (True: for nothing but time to pass). Empty where it runs, or where that may not be read."""
    try:
        words = host.read(f"/proc/{pid}/task/{tid or pid}/syscall", 4096).split()
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    except (HostError, ValueError, IndexError):
        return {}
    name = NUMBERS.get(platform.machine(), {}).get(number)
    if name is None or len(arguments) < 6:
        return {}
    found: Dict[str, Any] = {"name": name}
    descriptors = _descriptors(host, pid, name, arguments)
    if descriptors:
        found["descriptors"] = descriptors
    path = _path(pid, arguments[_OPENS[name]]) if name in _OPENS else ""
    if path:
        found["path"] = path
    if name in _SLEEPS or (name in _SELECTS and not any(arguments[1:4])):
        found["sleeps"] = True
    limit = _limit(pid, name, arguments)
    if limit is not None and limit < 0:
        found["endless"] = True
    elif limit is not None:
        found["left_s"] = round(limit, 3)
    return found


def _path(pid: int, place: int) -> str:
    """The file name at an address of `pid`; empty where its memory may not be read, or holds none."""
    for size in (PATH, PATH // 8):  # the end of the memory may be near
        raw = memory(pid, place, size)
        if raw is not None:
            return raw.split(b"\0")[0].decode("utf-8", "replace") if b"\0" in raw else ""
    return ""


def _descriptors(host: Host, pid: int, name: str, arguments: List[int]) -> List[int]:
    """The files and sockets that the call waits at; empty where it waits at none, or they may not be read."""
    if name in _AT_ONE:
        return [arguments[0]]
    if name in ("poll", "ppoll"):
        raw = memory(pid, arguments[0], 8 * min(arguments[1], MOST))
        return [number for number, _ in struct.iter_unpack("<ii", raw or b"") if number >= 0]
    if name.startswith("epoll"):
        try:
            lines = host.read(f"/proc/{pid}/fdinfo/{arguments[0]}", 1 << 20).splitlines()
        except HostError:
            return []
        return [int(line.split()[1]) for line in lines if line.startswith("tfd:")][:MOST]
    if name in _SELECTS and arguments[1]:
        raw = memory(pid, arguments[1], min(arguments[0] + 7, MOST) // 8)
        return [8 * place + bit for place, byte in enumerate(raw or b"") for bit in range(8) if byte >> bit & 1]
    return []


def _limit(pid: int, name: str, arguments: List[int]) -> Optional[float]:
    """Seconds; negative: without end; None: not known."""
    if name in _ENDLESS:
        return -1.0
    if name in _MILLISECONDS:
        shown = struct.unpack("<i", struct.pack("<I", arguments[_MILLISECONDS[name]] & 0xFFFFFFFF))[0]
        return shown / 1000
    if name in _RELATIVE:
        place = arguments[_RELATIVE[name]]
        return _seconds(pid, place, 1e-6 if name == "select" else 1e-9) if place else -1.0
    if name == "clock_nanosleep":
        until = _seconds(pid, arguments[2])
        return _left(until, arguments[0] == 0) if arguments[1] & _ABSTIME else until
    if name == "futex":
        operation, place = arguments[1] & 0xFFFFFFFF, arguments[3]
        if not place:
            return -1.0
        until = _seconds(pid, place)
        return _left(until, bool(operation & _FUTEX_REALTIME)) if operation & 0x7F == _FUTEX_WAIT_BITSET else until
    return None


def _left(until: Optional[float], real: bool) -> Optional[float]:
    return None if until is None else max(until - (time.time() if real else time.monotonic()), 0.0)


def _seconds(pid: int, place: int, unit: float = 1e-9) -> Optional[float]:
    """The `struct timespec` (or, by `unit`, timeval) at an address of `pid`; None where its memory may not be read."""
    raw = memory(pid, place, 16)
    if raw is None:
        return None
    seconds, part = struct.unpack("<qq", raw)
    return seconds + part * unit


def memory(pid: int, place: int, size: int) -> Optional[bytes]:
    """`size` bytes of the memory of `pid`; None where they may not be read."""
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.pread(descriptor, size, place)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(descriptor)
    return raw if len(raw) == size else None
