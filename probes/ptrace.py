"""Stacks of the engine's processes can be read from here.

`hang-dump` and `bringup` read stacks with py-spy, which needs the right to trace. Without it they still tell stages from logs,
sockets and kernel facts, but not the line that hangs: better to know before the night.

Source: ptrace(2) and Documentation/admin-guide/LSM/Yama.rst: /proc/sys/kernel/yama/ptrace_scope, CapEff in /proc/self/status.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, Optional, TypedDict

from ncdiag.host import Absent, Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, unknown, warn

CAP_SYS_PTRACE = 19
"""Bit in CapEff."""

SCOPES = {
    0: "any process of the same user",
    1: "own children only",
    2: "with CAP_SYS_PTRACE only",
    3: "nobody, until the next boot",
}
"""Yama's ptrace_scope."""


class Facts(TypedDict):
    """None: could not be read."""

    scope: Optional[int]
    """/proc/sys/kernel/yama/ptrace_scope; 0 where Yama is not built in."""
    capable: Optional[bool]
    """Whether CapEff has CAP_SYS_PTRACE."""
    uid: Optional[int]
    target: Optional[str]
    """With --pid: `readable`, or why the process cannot be traced."""


def collect(host: Host) -> Facts:
    try:
        scope: Optional[int] = int(host.read("/proc/sys/kernel/yama/ptrace_scope"))
    except Absent:
        # no Yama: classic rules, where /proc/sys itself is there to tell
        scope = 0 if host.exists("/proc/sys/kernel") else None
    except (HostError, ValueError):
        scope = None
    status = host.read("/proc/self/status")
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M)
    uid = re.search(r"^Uid:\s*(\d+)", status, re.M)
    target = None
    if host.pid is not None:
        pid = host.pid
        try:
            target = host.ask("trace-%d" % pid, lambda: _may_trace(pid))
        except HostError as error:
            target = error.reason
    return {
        "scope": scope,
        "capable": bool(int(effective.group(1), 16) >> CAP_SYS_PTRACE & 1) if effective else None,
        "uid": int(uid.group(1)) if uid else None,
        "target": target,
    }


def _may_trace(pid: int) -> str:
    """Opening a process's memory asks the kernel for the same right as attaching, and touches nothing. Raises OSError."""
    os.close(os.open("/proc/%d/mem" % pid, os.O_RDONLY))
    return "readable"


REMEDY = (
    "run ncdiag as root on the host; in a container add --cap-add=SYS_PTRACE (Kubernetes: securityContext.capabilities.add: [SYS_PTRACE]); "
    "or, as root, sysctl kernel.yama.ptrace_scope=0 until the fault is found"
)


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        source = "/proc/sys/kernel/yama/ptrace_scope, /proc/self/status"
        if facts["target"] == "readable":
            yield ok("the process given may be traced from here", node, source="/proc/PID/mem")
        elif facts["target"] is not None:
            yield warn(
                "the process given cannot be traced from here: %s" % facts["target"],
                node,
                source="/proc/PID/mem",
                observed=facts["target"],
                cause="ptrace-denied",
                remedy=REMEDY,
            )
        elif facts["capable"] and facts["scope"] != 3:
            yield ok("any process may be traced (CAP_SYS_PTRACE)", node, source=source)
        elif facts["scope"] is None or facts["capable"] is None:
            yield unknown(
                "whether processes may be traced here cannot be read",
                node,
                source=source,
                remedy="give --pid of a running process to try it",
            )
        elif facts["scope"] == 0:
            yield ok(
                "processes of user %s may be traced; those of others not" % facts["uid"],
                node,
                source=source,
                observed=0,
            )
        else:
            yield warn(
                "tracing is allowed to %s (ptrace_scope %d), and CAP_SYS_PTRACE is missing"
                % (SCOPES.get(facts["scope"], "nobody"), facts["scope"]),
                node,
                source=source,
                observed=facts["scope"],
                expected=0,
                cause="ptrace-denied",
                remedy=REMEDY,
            )


PROBE = Probe("ptrace", "Stacks of running processes can be read", judge, collect)
