"""Confidence taken back: where two causes cannot both be the one, and where one came after another thing had gone wrong."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.explain.consequences import GOOD
from ncdiag.explain.order import ASIDE
from ncdiag.explain.signals import Says, Signal, source_of
from ncdiag.model import Cause


def doubt(heads: Sequence[list[Signal]], causes: Sequence[Cause]) -> None:
    """Two causes that both end a job cannot both be the one thing to change: only the earlier one can be sure, and only where one source holds both, as nothing orders sources.
    A condition is a fact, but never surely the cause of what somebody asks about."""
    fatal = [index for index, group in enumerate(heads) if group[0].says is Says.NAMED and not group[0].condition]
    doubted = fatal if len({source_of(heads[index]) for index in fatal}) > 1 else fatal[1:]
    for index in (*doubted, *(index for index, group in enumerate(heads) if group[0].condition)):
        if causes[index].confidence == "sure":
            causes[index].confidence = "likely"


def doubt_late(heads: Sequence[list[Signal]], causes: Sequence[Cause], others: Sequence[Signal]) -> None:
    """What is named after something else went wrong in the same source may be its consequence: a port still held after a crash, the time limit of a job that hung."""
    for group, cause in zip(heads, causes, strict=True):
        source = source_of(group)
        if cause.confidence == "sure" and any(
            other.cause != cause.cause
            and source_of([other]) == source
            and other.order < min(signal.order for signal in group)
            for other in others
        ):
            cause.confidence = "likely"


def beside_good(heads: Sequence[list[Signal]], causes: Sequence[Cause]) -> None:
    """What does not slow a job that works is no likely cause of anything there."""
    if not heads or heads[0][0].cause not in GOOD:
        return
    for group, cause in zip(heads, causes, strict=True):
        if group[0].condition and group[0].cause in ASIDE:
            cause.confidence = "possible"
