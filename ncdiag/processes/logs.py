"""The logs of a whole family: each process's own lines, also where several write to one file."""

from __future__ import annotations

from collections.abc import Mapping

from ncdiag.host import Host, HostError
from ncdiag.processes import logtail, ranks
from ncdiag.processes.look import Look


def read(host: Host, looks: Mapping[int, Look]) -> dict[str, logtail.Log]:
    """Log files by name; every look gets its own lines, and the rank that they tell."""
    relatives = {pid for look in looks.values() for pid in (look.state.pid, look.state.parent or 0)}
    relatives |= {helper.pid for look in looks.values() for helper in look.member.helpers} | _siblings(host, looks)
    found = {
        pid: logtail.find(host, pid, relatives) for pid, look in looks.items() if look.kernel.state not in ("gone", "Z")
    }
    writers: dict[str, int] = {}
    for log in found.values():
        writers[log.source] = writers.get(log.source, 0) + 1
    for pid, log in found.items():
        if log.error:
            looks[pid].state.notes.append(log.error)
        else:
            _tell(looks[pid], log, shared=writers[log.source] > 1)
    return {log.source: log for log in found.values() if not log.error}


def _tell(look: Look, log: logtail.Log, *, shared: bool) -> None:
    pids = (look.state.pid, look.kernel.ns_pid)
    look.state.log_source, look.state.silent_s = log.source, log.silent_s
    look.state.log_tail = logtail.own_lines(log, pids, shared)
    if look.member.role in ("worker", "ray-worker"):
        whole = [*log.head, *log.tail]
        ranks.from_log(
            look.state, logtail.own_lines(logtail.Log(log.source, tail=whole), pids, True) if shared else whole
        )


def _siblings(host: Host, looks: Mapping[int, Look]) -> set[int]:
    """Processes of the same sessions that are no members: the `tee` of a shell pipeline."""
    sessions, found = {look.member.proc.session for look in looks.values()}, set()
    for name in host.names("/proc"):
        if not name.isdecimal() or int(name) in looks:
            continue
        try:
            fields = host.read_bytes(f"/proc/{name}/stat").decode("utf-8", "replace").rpartition(") ")[2].split()
        except HostError:
            continue
        if int(fields[3]) in sessions:
            found.add(int(name))
    return found
