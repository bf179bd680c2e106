"""From any pid of an engine to all its processes on this machine, each with its role.

Up: as long as the parent belongs to the engine. Down: every Python descendant; helpers (resource trackers, compile workers, data loaders,
compilers) are not members, but named at the member they work for. Sideways: what shares a rendezvous (MASTER_ADDR and MASTER_PORT, vLLM's
--master-addr and --master-port) or a Ray job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Dict

from ncdiag.host import Host, HostError
from ncdiag.processes import ray, roles
from ncdiag.processes.machine import SHELLS, Machine, rank_of, rendezvous
from ncdiag.processes.proc import Proc, status_fields

_SILENT = re.compile(
    r"multiprocessing\.(?:resource_tracker|semaphore_tracker|forkserver)|multiprocessing/resource_tracker"
)


class FamilyError(Exception):
    """The pid leads to no family; the text says why and what to do."""


@dataclass
class Member:
    """One process of the engine that can be waited for."""

    proc: Proc
    role: str
    helpers: list[Proc] = field(default_factory=list)
    """Its helper children and theirs: compilers, data loaders, compile workers."""
    wrappers: list[Proc] = field(default_factory=list)
    """Shells and the like among them: no place of theirs says anything, but what they and their children did counts."""
    below: int | None = None
    """The rank whose program it is, as in `RankState.below`."""


Family = Dict[int, Member]
"""pid -> member, ancestors before their children."""


def find(host: Host, pids: Iterable[int]) -> Family:
    """The families of all `pids` together. Raises FamilyError when a pid is no process here."""
    machine = Machine(host)
    family: Family = {}
    tops = dict.fromkeys(machine.top(seed) for pid in pids for seed in _seeds(machine, checked(machine, pid)))
    for top in tops:
        _add(machine, family, top)
    for proc in list(_allies(machine, family)):
        if proc.pid not in family:
            _add(machine, family, machine.top(proc.pid) if roles.titled_role(proc) != "ray-worker" else proc.pid)
    return family


def checked(machine: Machine, pid: int) -> int:
    """`pid`, where a process here has it. Raises FamilyError, which says what became of it."""
    if pid in machine.processes:
        return pid
    inside = [other for other in machine.processes if _inner_pid(machine.host, other) == pid]
    if inside:
        listed = ", ".join(str(other) for other in inside[:5])
        raise FamilyError(
            f"no process {pid} here; inside a container that number is process {listed} of this machine: give that one"
        )
    raise FamilyError(f"no process {pid} here: it has ended, or the number is from another container or machine")


def _seeds(machine: Machine, pid: int) -> list[int]:
    """`pid`, or, of a shell, a container's init or another wrapper, the Python programs that it started."""
    proc = machine.get(pid)
    if proc is None or proc.state == "Z" or roles.is_python(proc) or roles.is_launcher(proc):
        return [pid]
    below = [other for other in machine.below(pid) if roles.is_python(other) and not roles.is_helper(other)]
    engines = {machine.top(other.pid) for other in below}
    if os.path.basename(proc.exe) in SHELLS or len(engines) == 1:
        seeds = [other.pid for other in below if other.parent == pid or machine.top(other.pid) == other.pid]
        if seeds:
            return seeds
    shown = "; ".join(f"{other} ({machine.processes[other].command[:60]})" for other in sorted(engines)[:5])
    raise FamilyError(
        f"process {pid} ({proc.comm}) is no Python program"
        + (f"; it started {shown}: give one of these" if shown else " and started none")
    )


def _inner_pid(host: Host, pid: int) -> int | None:
    try:
        numbers = status_fields(host, f"/proc/{pid}/status").get("NSpid", "").split()
    except HostError:
        return None
    return int(numbers[-1]) if len(numbers) > 1 else None


def _add(machine: Machine, family: Family, top: int) -> None:
    nearest: dict[int, int] = {}
    for proc in machine.below(top):
        owner = nearest.get(proc.parent)
        if proc.pid in family:
            nearest[proc.pid] = proc.pid
        elif proc.pid == top or not _is_helper(machine, proc, family[owner] if owner is not None else None):
            parent = machine.parent(proc) if proc.pid != top else None
            role = roles.role_of(
                proc, parent, family[parent.pid].role if parent is not None and parent.pid in family else None
            )
            below = machine.rank_above(proc) if role == "script" else None
            family[proc.pid] = Member(proc, role, below=below)
            nearest[proc.pid] = proc.pid
        elif owner is not None:
            nearest[proc.pid] = owner
            its = family[owner]
            helpers = its.wrappers if os.path.basename(proc.exe) in SHELLS else its.helpers
            known = any(helper.pid == proc.pid for helper in helpers)  # each process of the family is looked below
            if not known and not _SILENT.search(proc.command):
                helpers.append(proc)
    _name_launchers(machine, family)


def _is_helper(machine: Machine, proc: Proc, owner: Member | None) -> bool:
    if proc.state == "Z":
        return not (roles.titled_role(proc) or proc.comm.startswith(("python", "pt_main_thread")))
    if roles.is_fork_server(proc):
        parent = machine.get(proc.parent)
        if parent is None or not roles.is_fork_server(parent):
            return True
    if not (roles.is_python(proc) or roles.is_launcher(proc)) or roles.is_helper(proc):
        return True
    if owner is None or roles.titled_role(proc) or owner.role != "script":
        return False
    rank = rank_of(proc)
    return rank is not None and rank == rank_of(owner.proc)  # a data loader: its parent's rank is not its own


def _name_launchers(machine: Machine, family: Family) -> None:
    """A plain program that itself has no rank and whose children are ranks only starts them."""
    parents = {
        parent.pid for member in family.values() if member.role == "script" and (parent := machine.parent(member.proc))
    }
    for pid, member in family.items():
        if member.role == "script" and pid in parents and rank_of(member.proc) is None:
            member.role = "launcher"


def _allies(machine: Machine, family: Family) -> Iterator[Proc]:
    """Programs elsewhere on the machine that are part of the same job."""
    meetings = {place for member in family.values() if (place := _meeting(machine, member.proc))}
    if meetings:
        yield from (
            proc for proc in machine.pythons() if proc.pid not in family and _meeting(machine, proc) in meetings
        )
    yield from ray.allies(machine, [member.proc for member in family.values()])


_ITSELF = re.compile(r"^(?:127\.|localhost|::1|\[::1\]|$)")
"""Addresses that are another place in every network namespace: each container has its own."""


def _meeting(machine: Machine, proc: Proc) -> tuple[str, str, str] | None:
    """Address, port and, where the address says nothing without it, the network namespace of its rendezvous."""
    place = rendezvous(proc)
    if place is None:
        return None
    try:
        namespace = machine.host.link(f"/proc/{proc.pid}/ns/net") if _ITSELF.match(place[0]) else ""
    except HostError:
        namespace = ""
    return (*place, namespace)
