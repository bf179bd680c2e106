"""How many processes of this node hold a rank, for the alert that one is missing."""

from __future__ import annotations

from ncdiag.host import Host
from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.processes import family, roles
from ncdiag.processes.machine import Machine, inherits, rank_of

WORKERS = ("worker", "ray-worker")


def read(host: Host, expected: int | None, sheet: Sheet) -> None:
    """Raises NotRead where processes cannot be seen."""
    if expected is not None:
        sheet.add("ncdiag_node_ranks_expected", expected)
    machine = Machine(host)
    if not machine.processes:
        raise NotRead("no process can be seen in /proc")
    sheet.add("ncdiag_node_ranks", count(host, machine))


def count(host: Host, machine: Machine) -> int:
    """Workers; an engine core that has none is a rank itself (one GPU); programs that a launcher gave a rank."""
    seeds = [proc.pid for proc in machine.pythons() if roles.titled_role(proc) or rank_of(proc)]
    if not seeds:
        return 0
    try:
        members = [member for member in family.find(host, seeds).values() if member.proc.state != "Z"]
    except family.FamilyError:  # it ended between two looks
        return 0
    workers = [member for member in members if member.role in WORKERS]
    parents = {member.proc.parent for member in workers}
    over_ray = any(member.role == "ray-worker" for member in workers)
    cores = [
        member for member in members if member.role == "engine-core" and not over_ray and member.proc.pid not in parents
    ]
    scripts = [
        member
        for member in members
        if member.role == "script" and rank_of(member.proc) is not None and not inherits(member.proc)
    ]
    return len(workers) + len(cores) + len(scripts)
