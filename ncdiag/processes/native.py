"""Whose native frames to read: resolving the symbols of a large library costs more CPU than all the rest, and a pause."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ncdiag.host import Host
from ncdiag.processes import stacks
from ncdiag.processes.look import MANAGERS, Look, Options
from ncdiag.processes.told import told


def chosen(host: Host, looks: Mapping[int, Look], options: Options) -> list[Look]:
    """Of those whose Python frames and system call do not tell enough, of every group of equal Python stacks the first and the last rank; ranks before
    those that only wait for them, small groups before large ones. Why the others are spared is put down at them."""
    if options.native == "none" or options.nonblocking:
        return []
    groups: dict[object, list[Look]] = {}
    for look in looks.values():
        if not look.first.threads or not look.kernel.pausable:
            continue
        if options.native == "auto" and told(host, look):
            look.first.error = f"{stacks.SPARED}: where it waits is told without; --native all reads them"
        else:
            groups.setdefault(stacks.python_frames(look.first.threads), []).append(look)
    if options.native == "all":
        return [look for group in groups.values() for look in group]
    return _some(groups.values())


def _some(groups: Collection[list[Look]]) -> list[Look]:
    found: list[Look] = []
    for group in groups:
        group.sort(key=lambda look: (look.state.rank is None, look.state.rank or 0, look.state.pid))
    for group in sorted(groups, key=lambda group: (group[0].state.role in MANAGERS, len(group))):
        found.extend([group[0], group[-1]] if len(group) > 1 else group)
    limit = max(2, (sum(map(len, groups)) + 1) // 2)
    for look in found[limit:]:
        look.first.error = f"{stacks.SPARED} to save CPU; --native all reads them"
    for group in groups:
        for look in group[1:-1]:
            look.first.error = (
                f"{stacks.SPARED}: process {group[0].state.pid} has the same Python stack; --native all reads them"
            )
    return found[:limit]
