"""The clock is kept by a time daemon and is synchronised.

Clocks that differ make time-outs, certificates and the order of log lines lie; one node an hour off looks like a network fault.
The kernel knows whether something disciplines the clock; how far nodes are apart is measured by the fleet.

Source: adjtimex(2): return value TIME_ERROR, status bit STA_UNSYNC, maxerror and offset in microseconds; /proc/PID/comm of the daemons.
"""

from __future__ import annotations

import ctypes
import os
from typing import Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, unknown, warn

DAEMONS = ("chronyd", "ntpd", "systemd-timesyn", "timemaster", "ptp4l", "phc2sys", "openntpd")
"""Names in /proc/PID/comm (cut to 15 characters) of programs that keep the clock."""

TIME_ERROR = 5
STA_UNSYNC = 0x40
STA_NANO = 0x2000

MAX_ERROR_S = 1.0
"""Estimated error from which time-outs and logs are no longer comparable."""


class Facts(TypedDict):
    """None: the kernel could not be asked."""

    synchronised: Optional[bool]
    max_error_s: Optional[float]
    """The kernel's bound on the error; grows by 0.5 ms a second while nothing disciplines the clock."""
    offset_s: Optional[float]
    """What the discipline still has to correct."""
    daemons: List[str]
    processes_seen: bool
    """Whether processes besides our own are visible (in a container they often are not)."""
    error: Optional[str]


class _Timex(ctypes.Structure):
    """struct timex of Linux on 64-bit machines."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("time", ctypes.c_long * 2),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_long * 32),
    ]


def _kernel_clock() -> List[int]:
    """`[state, status, maxerror in us, offset in us or ns]`; reading needs no privilege. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state = libc.adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return [state, timex.status, timex.maxerror, timex.offset]


def collect(host: Host) -> Facts:
    facts: Facts = {
        "synchronised": None,
        "max_error_s": None,
        "offset_s": None,
        "daemons": [],
        "processes_seen": False,
        "error": None,
    }
    try:
        state, status, max_error, offset = host.ask("adjtimex", _kernel_clock)
        facts["synchronised"] = state != TIME_ERROR and not status & STA_UNSYNC
        facts["max_error_s"] = max_error / 1e6
        facts["offset_s"] = offset / (1e9 if status & STA_NANO else 1e6)
    except HostError as error:
        facts["error"] = error.reason
    names = set()
    for pid in host.names("/proc"):
        if pid.isdecimal():
            try:
                names.add(host.value("/proc/%s/comm" % pid))
            except HostError:
                continue
    facts["processes_seen"] = len(names) > 4
    facts["daemons"] = sorted(name for name in names if name in DAEMONS)
    return facts


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        keeper = ", ".join(facts["daemons"])
        source = "adjtimex, /proc/PID/comm"
        if facts["synchronised"] is None:
            yield unknown("the kernel's clock could not be asked: %s" % facts["error"], node, source=source)
        elif facts["synchronised"] and facts["max_error_s"] < MAX_ERROR_S:
            yield ok(
                "the clock is synchronised, error below %.3f s%s"
                % (facts["max_error_s"], " (%s)" % keeper if keeper else ""),
                node,
                source=source,
                observed=facts["max_error_s"],
                unit="s",
            )
        else:
            found = (
                "%s runs but has not synchronised it" % keeper
                if keeper
                else ("no time daemon runs" if facts["processes_seen"] else "no time daemon is visible from here")
            )
            yield warn(
                "the clock is not synchronised (error up to %.1f s): %s" % (facts["max_error_s"], found),
                node,
                source=source,
                observed={"synchronised": facts["synchronised"], "max_error_s": facts["max_error_s"]},
                expected={"max_error_s": MAX_ERROR_S},
                cause="clock-skew",
                remedy="start one on the host (systemctl enable --now chronyd, on Debian and Ubuntu chrony), see that it reaches its servers (chronyc sources); compare `date` on the nodes",
            )


PROBE = Probe("clock", "The clock is synchronised", judge, collect)
