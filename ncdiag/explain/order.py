"""Signals of one cause together, causes in their order, and those folded that follow from another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ncdiag.explain.consequences import GENERIC, GOOD, brings_about
from ncdiag.explain.signals import Says, Signal, source_of

ASIDE = frozenset(
    {"ptrace-denied", "dns-unresponsive", "env-unknown-or-invalid"}
)  # as conditions they do not slow a job that works

GOOD_TIER = 55  # after what slows a job, before what is only possible
_TIER = {
    (Says.NAMED, False): 90,
    (Says.STRONG, False): 80,
    (Says.NAMED, True): 70,
    (Says.STRONG, True): 60,
    (Says.HINT, False): 50,
    (Says.HINT, True): 40,
}


FITTING_TIER = 75  # a condition that a symptom asks for, before those that only slow


def grouped(signals: Iterable[Signal]) -> tuple[dict[str, list[Signal]], list[Signal]]:
    groups: dict[str, list[Signal]] = {}
    loose = []
    for signal in signals:
        if signal.cause and signal.says >= Says.HINT:
            groups.setdefault(signal.cause, []).append(signal)
        else:
            loose.append(signal)
    for group in groups.values():
        group.sort(key=_strength)
    return groups, loose


def _strength(signal: Signal) -> tuple[int, float]:
    return (-_TIER[(signal.says, signal.condition)], signal.order)


def rank(group: list[Signal], asked: Collection[str] = ()) -> tuple[int, bool, float]:
    """`asked`: causes that fit the symptoms."""
    first = group[0]
    tier = GOOD_TIER if first.cause in GOOD else _TIER[(first.says, first.condition)]
    if first.condition and first.says >= Says.STRONG and first.cause in asked:
        tier = FITTING_TIER
    if first.condition and first.cause in ASIDE:
        tier = _TIER[(Says.HINT, True)]
    return (-tier, first.cause in GENERIC, min(signal.order for signal in group))


ASKED_LIMIT = 20  # signals of a group that are compared with another group's


def fold(
    ranked: Sequence[list[Signal]], apart: Callable[[Signal, Signal], bool]
) -> tuple[list[list[Signal]], list[Signal]]:
    """The groups that stay causes, and the signals of those that follow from one of them. What fits every end of a job follows from nothing in another attempt (`apart`)."""
    heads: list[list[Signal]] = []
    folded: list[Signal] = []
    solid = [group for group in ranked if group[0].says >= Says.STRONG]
    for group in ranked:
        cause = group[0].cause
        parents = [
            other
            for other in solid
            if other is not group
            and brings_about(other[0].cause, cause)
            and (not other[0].condition or group[0].condition or group[0].says is Says.HINT)
            and not brings_about(cause, other[0].cause)
            and not (cause in GENERIC and _apart(group, other, apart))
        ]
        first = cause == "engine-exception" and all(
            group[0].order < other[0].order and source_of(group) == source_of(other) for other in parents
        )
        if (
            parents
            and not first
            and (group[0].says < Says.NAMED or cause in GENERIC or any(p[0].says is Says.NAMED for p in parents))
        ):
            folded.extend(group)
        else:
            heads.append(group)
    return heads, folded


def _apart(group: Sequence[Signal], other: Sequence[Signal], apart: Callable[[Signal, Signal], bool]) -> bool:
    """Whether no signal of one group is known to be near one of the other."""
    return all(apart(one, two) for one in group[:ASKED_LIMIT] for two in other[:ASKED_LIMIT])
