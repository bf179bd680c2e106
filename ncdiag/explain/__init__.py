"""Signals from logs, stacks, sockets and facts -> one ranked list of causes.

A signal says how much it says. The order of the list follows from that alone, never from the order in which rules were tried:

1. what ends the job before what only slows it or may matter later;
2. what names its cause (`NAMED`) before what usually means it (`STRONG`) before what fits it among others (`HINT`);
3. what brings about the other (`FOLLOWS`) before what follows;
4. what was seen first.

`SYMPTOM` (a time-out, a closed connection) is never a cause: alone it gives `unresolved` with candidates. `CASCADE` is folded under what is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ncdiag.explain.attach import SECONDARY_LIMIT, attach
from ncdiag.explain.causes import EVIDENCE_LIMIT, also, cause_of, limited, next_steps, nothing, unresolved, words
from ncdiag.explain.consequences import ONLY_SLOWS, brings_about
from ncdiag.explain.doubt import beside_good, doubt, doubt_late
from ncdiag.explain.order import fold, grouped, rank
from ncdiag.explain.signals import Says, Signal
from ncdiag.model import Cause
from ncdiag.placeholders import filled

__all__ = ["EVIDENCE_LIMIT", "ONLY_SLOWS", "SECONDARY_LIMIT", "Says", "Signal", "Verdict", "brings_about", "explain"]


@dataclass
class Verdict:
    causes: list[Cause]
    next: list[str]


def explain(
    signals: Iterable[Signal],
    remedies: dict[str, str],
    steps: dict[str, tuple[str, ...]],
    follows: Callable[[Signal, Signal], bool],
    apart: Callable[[Signal, Signal], bool],
) -> Verdict:
    """`remedies`: cause -> one line. `steps`: cause -> what to collect to be surer. `follows`: whether the first signal is known to come after the second, in the same job.
    `apart`: whether two are known to be of two attempts, hours from each other."""
    groups, loose = grouped(signals)
    asked = {
        name for signal in loose if signal.says is Says.SYMPTOM and not signal.condition for name in signal.candidates
    }
    ranked = sorted(groups.values(), key=lambda group: rank(group, asked))
    heads, folded = fold(ranked, apart)
    causes = [cause_of(group, remedies) for group in heads]
    symptoms = sorted((s for s in loose if s.says is Says.SYMPTOM), key=lambda s: s.order)
    doubt(heads, causes)
    doubt_late(
        heads,
        causes,
        [*(group[0] for group in ranked if group[0].says >= Says.STRONG and not group[0].condition), *symptoms],
    )
    beside_good(heads, causes)
    causes.extend(also(heads, causes, remedies))
    if symptoms and not any(group[0].says >= Says.STRONG and not group[0].condition for group in heads):
        causes = unresolved(symptoms, causes, remedies, {group[0].cause for group in heads if not group[0].condition})
    if not causes:
        causes = [nothing(loose)]
    causes = limited(causes)
    for cause in causes:
        cause.remedy = filled(cause.remedy, words(cause.where))
    attach(causes, heads, [*folded, *sorted(loose, key=lambda s: (-s.says, s.order))], follows)
    return Verdict(causes, next_steps(causes, steps))
