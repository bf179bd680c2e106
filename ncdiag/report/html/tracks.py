"""Spans that run side by side, each on a track of its own."""

from __future__ import annotations

from collections.abc import Sequence


def tracks(spans: Sequence[tuple[int, int]]) -> list[int]:
    """The track of each span, short spans on the inner tracks; no two on one track overlap.

    >>> tracks([(0, 3), (1, 2), (4, 5)])
    [1, 0, 0]
    """
    taken: list[list[tuple[int, int]]] = []
    chosen = [0] * len(spans)
    for index in sorted(range(len(spans)), key=lambda index: (spans[index][1] - spans[index][0], index)):
        start, end = spans[index]
        track = next(
            (
                number
                for number, others in enumerate(taken)
                if all(end < first or last < start for first, last in others)
            ),
            len(taken),
        )
        if track == len(taken):
            taken.append([])
        taken[track].append((start, end))
        chosen[index] = track
    return chosen
