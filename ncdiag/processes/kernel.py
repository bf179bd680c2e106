"""What the kernel says of a process: its state, where it sleeps, what holds it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ncdiag.host import Host, HostError
from ncdiag.processes.proc import read_stat, status_fields


@dataclass
class KernelFacts:
    """One look. Empty strings: not readable here, or nothing there."""

    state: str = ""
    """/proc/PID/stat: the letter of the main thread; `gone` when there is no such process."""
    wchan: str = ""
    syscall: str = ""
    """/proc/PID/syscall: `number arguments…`, `running`, or empty where it may not be read."""
    stack: list[str] = field(default_factory=list)
    """/proc/PID/stack, function names only; needs CAP_SYS_ADMIN."""
    threads: dict[int, str] = field(default_factory=dict)
    """Thread id -> its state letter."""
    tracer: int | None = None
    sampled: bool = False
    """Whether the tracer only reads a stack, for a moment (another look of ncdiag at the same node, say), or has ended since."""
    frozen: bool | None = None
    ns_pid: int | None = None
    sends: bool = False
    """Whether a thread is amid a write that its reader does not take: a pause would cut it short, and programs lose the rest."""

    @property
    def pausable(self) -> bool:
        """Whether every thread would answer to being paused, and go on as if nothing had been: none is stopped, traced, frozen, in the D state, or
        amid a write."""
        return (
            not self.frozen and self.tracer is None and not self.sends and not set(self.threads.values()) & set("TtD")
        )


def look(host: Host, pid: int) -> KernelFacts:
    """All of it; what cannot be read stays empty."""
    proc = read_stat(host, pid)
    if proc is None:
        return KernelFacts("gone")
    facts = KernelFacts(proc.state)
    base = f"/proc/{pid}"
    facts.wchan = _text(host, base + "/wchan").strip("0") and _text(host, base + "/wchan")
    facts.syscall = _text(host, base + "/syscall")
    facts.stack = [line.split()[-1].split("+")[0] for line in _text(host, base + "/stack").splitlines() if line.strip()]
    facts.threads = _thread_states(host, base)
    facts.sends = any(_sends(host, base, tid) for tid, letter in facts.threads.items() if letter == "S")
    facts.frozen = frozen(host, pid)
    try:
        status = status_fields(host, base + "/status")
    except HostError:
        return facts
    facts.tracer = int(status.get("TracerPid", "0") or 0) or None
    facts.sampled = facts.tracer is not None and _samples(host, facts.tracer)
    numbers = status.get("NSpid", "").split()
    facts.ns_pid = int(numbers[-1]) if len(numbers) > 1 else None
    return facts


def _samples(host: Host, tracer: int) -> bool:
    """Whether a tracer is py-spy, by its name or, where it runs from memory, by the words that `stacks` gives it; or is no more."""
    words = _text(host, f"/proc/{tracer}/cmdline").split("\0")
    return words == [""] or os.path.basename(words[0]).startswith("py-spy") or words[1:4] == ["dump", "--json", "--pid"]


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path, 65536).strip()
    except HostError:
        return ""


def _thread_states(host: Host, base: str) -> dict[int, str]:
    states = {}
    try:
        names = host.list(base + "/task")
    except HostError:
        return {}
    for name in names:
        content = _text(host, f"{base}/task/{name}/stat")
        if content:
            states[int(name)] = content.rpartition(") ")[2][:1]
    return states


_SENDS = ("pipe_write", "sk_stream_wait_memory", "unix_wait_for_peer", "sock_alloc_send_pskb")
"""Wait channels of a write that has written a part: after a pause (ptrace, SIGSTOP) it returns what it has instead of going on."""


def _sends(host: Host, base: str, tid: int) -> bool:
    wchan = _text(host, f"{base}/task/{tid}/wchan")
    return any(word in wchan for word in _SENDS)


def frozen(host: Host, pid: int) -> bool | None:
    """Whether its cgroup is frozen: `cgroup.freeze` (v2) or `freezer.state` (v1); None where neither is there."""
    told = None
    for line in _text(host, f"/proc/{pid}/cgroup").splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0":
            places = [("/sys/fs/cgroup", "cgroup.events"), ("/sys/fs/cgroup/unified", "cgroup.events")]
        elif "freezer" in controllers.split(","):
            places = [("/sys/fs/cgroup/freezer", "freezer.state")]
        else:
            continue
        for root, name in places:
            content = _text(host, os.path.normpath(f"{root}/{path}/{name}"))
            if content:
                told = bool(told) or content in ("FROZEN", "FREEZING") or "frozen 1" in content.splitlines()
    return told
