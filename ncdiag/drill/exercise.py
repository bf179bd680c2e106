"""Faults as exercises: a number that gives nothing away, how hard each is, hints, and whether an answer is right. Pure."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from .faults import FAULTS, Fault
from .faults.base import HEALTHY, SLOW

NOTHING = (HEALTHY, SLOW)
"""Answers where nothing is broken: it is as it should be, or only slow."""
EASY, MEDIUM, HARD = 1, 2, 3
LEVELS = {
    EASY: "the log says it",
    MEDIUM: "look at the right process",
    HARD: "nothing says it: compare, and look between",
}
_EASY = frozenset(
    {
        "model-path-missing",
        "weights-corrupt",
        "engine-exception",
        "port-in-use",
        "shm-too-small",
        "disk-full",
        "ray-version-mismatch",
    }
)
_HARD = frozenset(
    {
        "bootstrap-blocked-firewall",
        "hostname-resolves-to-loopback",
        "node-ip-wrong-interface",
        "rank-layout-wrong",
        "stale-process",
        "clock-skew",
        "dns-unresponsive",
        "version-mismatch",
        "host-memory-oom",
        *NOTHING,
    }
)
_ROOMS = {
    "addresses": "Which address and which interface does each rank use, and does that lead to the other host?",
    "network": "Follow the connections: who listens where, who dials what, and who gets no answer?",
    "earlier": "Look at what was there before this start: processes, ports, the hosts themselves.",
    "layout": "Compare what the ranks were told about each other: numbers, ports, sizes, and who is there at all.",
    "ranks": "Look at each rank's process: is it there, does it move, what does it wait for, what did it say last?",
    "files": "Look at what each rank reads from its own host.",
    "storage": "Look at what each rank reads from its own host, and how fast.",
    "versions": "Are the hosts the same?",
    "ray": "Look at Ray first: its head, its nodes, what it has and what it is asked for.",
}
"""First hints, by the file that a fault stands in."""


def numbers() -> dict[int, Fault]:
    """Number -> fault. A fault keeps its number as long as its name, and neighbours have nothing in common."""
    found: dict[int, Fault] = {}
    for name in sorted(FAULTS):
        number = 1000 + zlib.crc32(name.encode()) % 9000
        while number in found:
            number = 1000 + (number - 999) % 9000
        found[number] = FAULTS[name]
    return dict(sorted(found.items()))


def number_of(fault: Fault) -> int:
    return next(number for number, other in numbers().items() if other is fault)


def find(word: str) -> Fault | None:
    """The fault with this name or number."""
    return FAULTS.get(word) or (numbers().get(int(word)) if word.isdecimal() else None)


def level(fault: Fault) -> int:
    """How hard it is to find: EASY, MEDIUM or HARD."""
    if fault.causes[0] in _EASY:
        return EASY
    return HARD if fault.causes[0] in _HARD or fault.probe else MEDIUM


def pick(faults: Iterable[Fault], seed: int) -> Fault | None:
    """One of those that keep a job from coming up; None where there is none."""
    choice = sorted((fault for fault in faults if fault.causes[0] not in NOTHING and not fault.probe), key=number_of)
    return random.Random(seed).choice(choice) if choice else None


@dataclass(frozen=True)
class Answer:
    """What a trainee said: a cause and, where they dared, a place."""

    cause: str
    node: str | None = None
    rank: int | None = None


def read_answer(words: str, hosts: Iterable[str]) -> Answer | str:
    """`rank-died`, `rank-died b`, `rank-died rank 1`; else what cannot be understood in it."""
    cause, *rest = words.replace(",", " ").split()
    node, rank = None, None
    for word in rest:
        if word in hosts:
            node = word
        elif word.isdecimal():
            rank = int(word)
        elif word.removeprefix("rank").isdecimal():
            rank = int(word.removeprefix("rank"))
        elif word not in ("on", "in", "at", "host", "node", "rank"):
            return f"{word!r} is no host and no rank; an answer is CAUSE [HOST] [RANK], as: rank-died b"
    return Answer(cause, node, rank)


def wrong_with(fault: Fault, answer: Answer) -> str:
    """Empty when it is right; else whether it is the cause or the place that is not."""
    if answer.cause not in fault.causes:
        return "that is not it"
    places = [(answer.node, fault.node), (answer.rank, fault.rank)]
    if any(said is not None and true is not None and said != true for said, true in places):
        return "the cause is right, the place is not"
    return ""


def hints(fault: Fault, seed: int) -> list[str]:
    """From vague to plain; the last one leaves three causes."""
    room = fault.break_it.__module__.rpartition(".")[2]
    first = _ROOMS.get(room, "Begin with what each rank said last, then with what its process does now.")
    if fault.causes[0] in NOTHING:
        first = "Does something move? Look twice, some seconds apart."
    place = [f"host {fault.node}"] if fault.node else []
    place += [f"rank {fault.rank}"] if fault.rank is not None else []
    second = f"It is at {', '.join(place)}." if place else "It is not one host or one rank alone."
    if fault.causes[0] in NOTHING:
        return [first, "Nothing of it is broken. The answer is one of: " + ", ".join(NOTHING)]
    known = {other.causes[0] for other in FAULTS.values()} - {*fault.causes, *NOTHING}
    others = random.Random(seed).sample(sorted(known), 2)
    return [first, second, "It is one of: " + ", ".join(sorted([fault.causes[0], *others]))]
