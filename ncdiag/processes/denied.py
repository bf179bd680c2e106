"""Why a process's stacks cannot be read, and the exact way out."""

from __future__ import annotations

import os
import re

CAP_SYS_PTRACE = 19
DENIED = "may not be traced"
"""What every reason says that is about permission."""


def way_out(pid: int, reason: str) -> str:
    """One sentence on what py-spy said of `pid`: the object, the reason, and what to do."""
    if not os.path.exists(f"/proc/{pid}"):
        return f"process {pid} ended"
    first = _shortly(reason)
    if re.search(r"permission denied|operation not permitted|os error 1\b|os error 13\b", reason, re.I):
        return f"process {pid} {DENIED}: {_denied(pid)}"
    if re.search(r"python version|Unsupported version|version of python", reason, re.I):
        return _version(pid, first)
    if re.search(r"no answer within", reason):
        return f"process {pid} (state {_state(pid)}): {first}; the machine is busy or the process cannot be paused, try --nonblocking"
    if re.search(r"suspend process|waitpid", reason):
        return f"process {pid} could not be paused ({first}); try --nonblocking"
    if re.search(r"interpreter|PyRuntime|thread state", reason, re.I):
        return f"process {pid}: no Python interpreter found in it yet ({first}); it is starting or ending, run again"
    return f"process {pid}: {first}"


def _shortly(reason: str) -> str:
    """What failed, and the innermost cause of it."""
    lines = [line.strip() for line in reason.splitlines() if line.strip() and not line.startswith("Caused by")]
    if not lines:
        return "py-spy gave no reason"
    first, last = re.sub(r"^Error: ", "", lines[0]), re.sub(r"^\d+: ", "", lines[-1])
    return first if len(lines) == 1 or last in first else f"{first}: {last}"


def _denied(pid: int) -> str:
    owner, me = _uid(pid), os.geteuid()
    if me != 0 and owner is not None and owner != me:
        return f"it belongs to user {owner}, ncdiag runs as {me}; run it as root (sudo) or as user {owner}"
    if not _capable():
        return (
            "the capability CAP_SYS_PTRACE is missing; docker: --cap-add SYS_PTRACE, Kubernetes: securityContext.capabilities.add "
            "[SYS_PTRACE] or kubectl debug --profile=sysadmin, else run ncdiag on the host"
        ) + _yama()
    if _traced(pid):
        return f"process {_traced(pid)} (a debugger) already traces it; detach that first"
    return "a security module or seccomp filter of the container forbids ptrace; docker: --security-opt seccomp=unconfined, or run on the host"


def _yama() -> str:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return ""
    if scope in ("0", ""):
        return ""
    undo = (
        "sysctl -w kernel.yama.ptrace_scope=0"
        if scope != "3"
        else "kernel.yama.ptrace_scope is 3 and can only be changed by a reboot"
    )
    return f"; or, on the machine itself (kernel.yama.ptrace_scope is {scope}): {undo}"


def _version(pid: int, first: str) -> str:
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        program = "its program"
    if not re.match(r"python|pypy|pt_main", program):
        return f"process {pid} runs {program}, which is no Python that py-spy knows"
    return f"process {pid} runs {program}, which this py-spy does not know ({first}); pip install -U py-spy"


def _field(path: str, name: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None


def _uid(pid: int) -> int | None:
    value = _field(f"/proc/{pid}/status", "Uid")
    return int(value.split()[0]) if value else None


def _state(pid: int) -> str:
    return _field(f"/proc/{pid}/status", "State") or "gone"


def _traced(pid: int) -> int:
    return int(_field(f"/proc/{pid}/status", "TracerPid") or 0)


def _capable() -> bool:
    value = _field("/proc/self/status", "CapEff")
    return bool(value and int(value, 16) >> CAP_SYS_PTRACE & 1)
