"""Stacks of a process that sleeps, read without waking it.

A pause ends a sleep for a moment: the scheduler's clock, by which a long sleep is told, starts anew, and the next look knows less. Without a pause
py-spy reads the memory of a process that may run, and what it reads may be torn. But nobody changes the frames of a thread but itself: of one that has
not run between before and after, they are exact.
"""

from __future__ import annotations

from typing import Any

from ncdiag.host import Host
from ncdiag.processes import kernel, pulse, stacks
from ncdiag.processes.stacks import Stacks

ATTEMPTS = 3
"""Reads without a pause before a process is paused: a thread beside the main one that runs now and then has to look alike in two in a row."""


def read(host: Host, pid: int, *, nonblocking: bool = False, variables: bool = False) -> Stacks:
    """Python stacks: without a pause where they are exact so, or where it must not or cannot be paused; else with one (`Stacks.paused`)."""
    found = _asleep(host, pid, variables)
    if found is not None:
        return found
    return stacks.read(pid, nonblocking=nonblocking or not kernel.look(host, pid).pausable, variables=variables)


def _asleep(host: Host, pid: int, variables: bool) -> Stacks | None:
    """None where its main thread runs, what others did meanwhile changes their frames, or nothing tells whether they ran."""
    before, kept = pulse.turns(host, pid), Stacks()
    for _ in range(ATTEMPTS):
        if pid not in before:
            return None
        again = stacks.read(pid, nonblocking=True, variables=variables)
        after = pulse.turns(host, pid)
        if not again.threads or any(thread["tid"] is None for thread in again.threads):
            return None
        slept = pulse.slept(before, after)
        if _exact(again, kept, slept):
            for thread in again.threads:
                thread["active"] = thread["active"] and thread["tid"] not in slept
            return again
        before, kept = after, again
    return None


def _exact(again: Stacks, kept: Stacks, slept: set[int]) -> bool:
    """Whether every main thread slept meanwhile, and what did not looks as it did in the read before."""
    earlier = {thread["tid"]: _frames(thread) for thread in kept.threads}
    awake = [thread for thread in again.threads if thread["tid"] not in slept]
    return not any(thread["main"] for thread in awake) and all(
        earlier.get(thread["tid"]) == _frames(thread) for thread in awake
    )


def _frames(thread: dict[str, Any]) -> tuple[Any, ...]:
    return stacks.python_frames([thread])
