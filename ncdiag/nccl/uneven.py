"""Findings for nodes that differ from the others in one thing. Pure; travels to nodes."""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping

from ncdiag.model import Finding
from ncdiag.parity import split


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
        others = found.common or " or ".join(value for value in found.groups if value != own)
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
