"""Lines beside a cause: what is known to follow from it, and what was only seen, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ncdiag.explain.consequences import GENERIC, GOOD, brings_about
from ncdiag.explain.signals import Says, Signal, source_of
from ncdiag.model import Cause

SECONDARY_LIMIT = 12
ATTACH_LIMIT = 2000  # signals beside the causes that are looked at


def attach(
    causes: Sequence[Cause],
    heads: Sequence[list[Signal]],
    signals: Sequence[Signal],
    follows: Callable[[Signal, Signal], bool],
) -> None:
    """What follows from a cause goes to the first one that it is known to follow from; the rest was only seen, too."""
    roots = [(cause, _Root(group)) for cause in causes for group in heads if _brings(cause, group)]
    seen = {(item.source, item.line) for cause in causes for item in cause.evidence}
    for signal in signals[:ATTACH_LIMIT]:
        parent = next((cause for cause, root in roots if root.brings(signal, follows)), None)
        place = causes[0].also_seen if parent is None else parent.secondary
        for item in signal.evidence[:2]:
            if (item.source, item.line) not in seen and len(place) < SECONDARY_LIMIT:
                seen.add((item.source, item.line))
                place.append(item)


def _brings(cause: Cause, group: list[Signal]) -> bool:
    """Whether it is claimed that a cause, which `group` speaks for, brought something about."""
    return group[0].cause == cause.cause not in GOOD and cause.confidence != "possible"


class _Root:
    """The signals of one cause that others may follow from: the strongest, and the first one of each source."""

    def __init__(self, group: Sequence[Signal]) -> None:
        self._main = group[0]
        self._first: dict[str, Signal] = {}
        for signal in sorted(group, key=lambda one: one.order):
            if signal.evidence and signal.condition == self._main.condition:
                self._first.setdefault(signal.evidence[0].source, signal)

    def brings(self, signal: Signal, follows: Callable[[Signal, Signal], bool]) -> bool:
        if not self._fits(signal):
            return False
        near = self._first.get(source_of([signal]), self._main)
        return follows(signal, near) or (near is not self._main and follows(signal, self._main))

    def _fits(self, signal: Signal) -> bool:
        """Whether it is something that the cause brings about. What ends a job makes ranks die and others miss them, in whatever words; what only slows it ends none."""
        names = (signal.cause,) if signal.cause else signal.candidates
        if not self._main.condition:
            return not names or any(name in GENERIC or self._of(name) for name in names)
        return any(map(self._of, names)) and (signal.condition or signal.says <= Says.HINT)

    def _of(self, name: str) -> bool:
        return name == self._main.cause or brings_about(self._main.cause, name)
