"""Compares the same thing over nodes: majority against outliers when there are enough, else "these differ". Travels to nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ncdiag.nodeset import fold

SHOWN = 4
"""Values that are spelt out in a sentence; what is more is counted."""


@dataclass(frozen=True)
class Split:
    """Nodes by value; `common` is the value of a clear majority, None when there is none."""

    groups: Dict[str, List[str]]
    """Value as text -> the nodes that have it, largest group first."""
    common: Optional[str]

    @property
    def outliers(self) -> Dict[str, List[str]]:
        """The groups other than the majority's; all of them when there is no majority."""
        return {value: nodes for value, nodes in self.groups.items() if value != self.common}

    def others(self, value: str) -> str:
        """What the nodes without `value` have: `9000 on the other 63`, `2.29 on gpu07; 2.28 on gpu08`."""
        rest = {other: nodes for other, nodes in self.groups.items() if other != value}
        if len(rest) > 1:
            return shared(rest)
        other, nodes = next(iter(rest.items()))
        return "%s on %s" % (other, fold(nodes) if len(nodes) == 1 else "the other %d" % len(nodes))


def split(values: Mapping[str, Any]) -> Optional[Split]:
    """How `values` (node -> value, None where it is not known) differ; None when all known ones are equal."""
    groups: Dict[str, List[str]] = {}
    for node, value in values.items():
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            groups.setdefault(text, []).append(node)
    if len(groups) < 2:
        return None
    ordered = dict(sorted(groups.items(), key=lambda group: -len(group[1])))
    first, total = next(iter(ordered)), sum(len(nodes) for nodes in groups.values())
    return Split(ordered, first if total >= 3 and 2 * len(ordered[first]) > total else None)


def shared(groups: Mapping[Any, Iterable[str]]) -> str:
    """Which nodes have which value, in one line; None stands for "not set".

    >>> shared({9000: ["gpu01", "gpu02", "gpu03"], None: ["gpu04"]})
    '9000 on gpu[01-03]; not set on gpu04'
    """
    named = sorted(((value, list(nodes)) for value, nodes in groups.items()), key=lambda group: -len(group[1]))
    parts = ["%s on %s" % ("not set" if value is None else value, fold(nodes)) for value, nodes in named[:SHOWN]]
    rest = named[SHOWN:]
    if rest:
        parts.append("%d more values on %s" % (len(rest), fold(node for _value, nodes in rest for node in nodes)))
    return "; ".join(parts)
