"""Compares the same thing over nodes: majority against outliers when there are enough, else "these differ". Travels to nodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional


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
