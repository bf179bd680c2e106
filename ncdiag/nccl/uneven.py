"""Nodes and devices that differ from the others in one thing. Pure; travels to nodes."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple, TypeVar

from ncdiag.model import Finding
from ncdiag.parity import SHOWN, split

Thing = TypeVar("Thing")


def uneven(
    made: Callable[..., Finding], values: Mapping[str, Any], summary: str, *, source: str, cause: str, remedy: str
) -> Iterator[Finding]:
    """One finding for each node apart from the majority, or for every node where there is none.

    `made`: `warn` or `fail`; `values`: node -> value, None where it is not known; `summary` with {own} and {others}.
    """
    found = split(values)
    if found is None:
        return
    for own, nodes in found.outliers.items():
        others = found.common or " or ".join([value for value in found.groups if value != own][:SHOWN])
        for node in nodes:
            yield made(
                summary.format(own=own, others=others),
                node,
                source=source,
                observed=own,
                expected=others,
                cause=cause,
                remedy=remedy,
            )


def odd_ones(items: Sequence[Thing], value: Callable[[Thing], Any]) -> Iterator[Tuple[Any, Any, List[Thing]]]:
    """(value, the most frequent value, those that have it) for devices apart from the most frequent one; none at a draw."""
    counted = Counter(value(item) for item in items)
    if len(counted) < 2:
        return
    (usual, times), (_, next_times) = counted.most_common(2)
    if times > next_times:
        for unusual, group in grouped([item for item in items if value(item) != usual], value):
            yield unusual, usual, group


def grouped(items: Iterable[Thing], key: Callable[[Thing], Any]) -> Iterable[Tuple[Any, List[Thing]]]:
    """By key, in the order of the first of each."""
    groups: Dict[Any, List[Thing]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups.items()
