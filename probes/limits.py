"""Locked memory, open files, processes and stack are not limited below what the ranks need.

RDMA registers (locks) its buffers: with a limit on locked memory `ibv_reg_mr` and `ibv_create_cq` fail with "Cannot allocate
memory". Every rank keeps sockets to many others, so a start-up of 144 ranks needs over 32,000 open files on the node that
serves the store. The limits of the engine count, not those of this shell: give --pid where it runs already.

Source: /proc/PID/limits; NCCL user guide, troubleshooting; Ray's own warning at fewer than 4096 open files.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn

FILES_PER_RANK = 230
"""Open files per rank of the whole job on one node: 144 ranks were seen to need over 32,000."""

FILES_AT_LEAST = 4096
"""Ray warns below this."""

PROCESSES_AT_LEAST = 4096
"""A Ray node with eight workers starts well over a thousand threads."""

STACK_AT_LEAST = 1 << 20
"""Bytes; glibc gives every thread a stack of this size."""

LOCKED_FAIL = 64 << 20
"""Bytes of locked memory below which not even NCCL's queues and first buffers can be registered."""

CAP_IPC_LOCK = 14
"""Bit in CapEff that lifts the limit on locked memory."""


class Facts(TypedDict):
    """Soft limits; None is unlimited."""

    of: str
    """Whose limits: `process 123` or `this process`."""
    memlock: Optional[int]
    nofile: Optional[int]
    nproc: Optional[int]
    stack: Optional[int]
    hard: Dict[str, Optional[int]]
    """The same names -> hard limit."""
    ipc_lock: Optional[bool]
    """Whether CapEff has CAP_IPC_LOCK; None when it could not be read."""
    rdma: bool
    """Whether /sys/class/infiniband holds a device."""


_LINES = {
    "memlock": "Max locked memory",
    "nofile": "Max open files",
    "nproc": "Max processes",
    "stack": "Max stack size",
}


def collect(host: Host) -> Facts:
    who = str(host.pid) if host.pid is not None else "self"
    text = host.read("/proc/%s/limits" % who)
    facts: Any = {"of": "process %d" % host.pid if host.pid is not None else "this process", "hard": {}}
    for name, label in _LINES.items():
        match = re.search(r"^%s\s+(\S+)\s+(\S+)" % label, text, re.M)
        if match is None:
            raise HostError("/proc/%s/limits" % who, "no line %r in it" % label)
        facts[name], facts["hard"][name] = (None if value == "unlimited" else int(value) for value in match.groups())
    facts["ipc_lock"] = _capability(host, who)
    facts["rdma"] = bool(host.names("/sys/class/infiniband"))
    return facts


def _capability(host: Host, who: str) -> Optional[bool]:
    try:
        match = re.search(r"^CapEff:\s*([0-9a-f]+)", host.read("/proc/%s/status" % who), re.M)
    except HostError:
        return None
    return bool(int(match.group(1), 16) >> CAP_IPC_LOCK & 1) if match else None


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        yield _memlock(node, facts)
        yield _files(node, facts, snapshot.plan.ranks)
        yield _at_least(
            node,
            facts,
            "nproc",
            PROCESSES_AT_LEAST,
            "processes and threads",
            "ulimit -u 65536; systemd: TasksMax=infinity, LimitNPROC=65536; docker: --pids-limit -1",
        )
        yield _at_least(node, facts, "stack", STACK_AT_LEAST, "bytes of stack", "ulimit -s 8192")


def _memlock(node: str, facts: Facts) -> Finding:
    source = "/proc/PID/limits of " + facts["of"]
    if facts["memlock"] is None or facts["ipc_lock"]:
        return ok("locked memory is not limited for %s" % facts["of"], node, source=source, setting="memlock")
    if not facts["rdma"]:
        return skip(
            "locked memory is limited to %d KiB; without RDMA devices nothing is registered" % (facts["memlock"] >> 10),
            node,
            source=source,
            setting="memlock",
        )
    if facts["ipc_lock"] is None:
        return unknown(
            "locked memory is limited to %d KiB for %s; whether CAP_IPC_LOCK lifts that could not be read"
            % (facts["memlock"] >> 10, facts["of"]),
            node,
            source=source,
            setting="memlock",
            remedy="see CapEff in /proc/PID/status of the engine; without the capability it needs: ulimit -l unlimited",
        )
    conclude = fail if facts["memlock"] < LOCKED_FAIL else warn
    return conclude(
        "locked memory is limited to %d KiB for %s; RDMA needs it unlimited" % (facts["memlock"] >> 10, facts["of"]),
        node,
        source=source,
        observed=facts["memlock"],
        unit="bytes",
        expected="unlimited",
        cause="memlock-limit",
        setting="memlock",
        remedy="docker: --ulimit memlock=-1:-1; systemd: LimitMEMLOCK=infinity; Slurm: PropagateResourceLimitsExcept=MEMLOCK; shell: ulimit -l unlimited",
    )


def _files(node: str, facts: Facts, ranks: Optional[int]) -> Finding:
    source, soft, hard = "/proc/PID/limits of " + facts["of"], facts["nofile"], facts["hard"]["nofile"]
    needed = max(FILES_AT_LEAST, FILES_PER_RANK * (ranks or 0))
    if soft is None or soft >= needed:
        return ok(
            "%s open files are allowed" % ("unlimited" if soft is None else soft),
            node,
            source=source,
            observed=soft,
            unit="open files",
            setting="nofile",
        )
    planned = (
        "%d ranks need about %d" % (ranks, needed)
        if ranks and needed > FILES_AT_LEAST
        else "a node of a cluster needs at least %d" % needed
    )
    # a program may raise its soft limit up to the hard one, as Ray and vLLM do
    conclude = fail if ranks and needed > FILES_AT_LEAST and hard is not None and hard < needed else warn
    return conclude(
        "%d open files are allowed (hard limit %s); %s" % (soft, "unlimited" if hard is None else hard, planned),
        node,
        source=source,
        observed=soft,
        unit="open files",
        expected=needed,
        cause="open-files-limit",
        setting="nofile",
        remedy="ulimit -n 65536 before the start; docker: --ulimit nofile=65536:65536; systemd: LimitNOFILE=65536",
    )


def _at_least(node: str, facts: Any, name: str, needed: int, what: str, remedy: str) -> Finding:
    value, source = facts[name], "/proc/PID/limits of " + facts["of"]
    if value is None or value >= needed:
        return ok(
            "%s %s are allowed" % ("unlimited" if value is None else value, what),
            node,
            source=source,
            observed=value,
            unit=what.rpartition(" of stack")[0] or what,
            setting=name,
        )
    return warn(
        "only %d %s are allowed; at least %d are needed" % (value, what, needed),
        node,
        source=source,
        observed=value,
        unit=what.rpartition(" of stack")[0] or what,
        expected=needed,
        cause="process-limit",
        setting=name,
        remedy=remedy,
    )


PROBE = Probe("limits", "Resource limits leave room for the ranks", judge, collect)
