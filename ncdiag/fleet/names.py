"""Names of nodes as people write them: ClusterShell's node sets and their operators, and `@FILE` for the hosts that a file lists.

Sets are joined by `,` and narrowed by `!` (without), `&` (in both) and `^` (in one of the two), from left to right:
`gpu[01-10]!gpu03`, `@hostfile,gpu09`, `gpu[0-14/2]`. Source: ClusterShell's documentation of nodeset, extended string patterns.
"""

from __future__ import annotations

import os
import re

from ncdiag.fleet.base import FleetError

_OPERATOR = re.compile(r"([,!&^])(?![^\[]*\])")
"""Outside brackets."""

_METHODS = {",": "update", "!": "difference_update", "&": "intersection_update", "^": "symmetric_difference_update"}


def expand(spec: str) -> list[str]:
    """The nodes, sorted, each once; none where nothing is left. Raises FleetError that says what is wrong with `spec`."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    found, operator = NodeSet(), ","
    for number, part in enumerate(_OPERATOR.split(spec)):
        if number % 2:
            operator = part
            continue
        try:
            getattr(found, _METHODS[operator])(NodeSet(_read(part.strip(), spec)))
        except NodeSetException as error:
            raise FleetError(f"{spec}: {error}") from error
    return list(found)


def _read(part: str, spec: str) -> str:
    """`@FILE` as the hosts in it (the first word of each line; a hostfile's slots are ignored); all else as it stands. Raises FleetError."""
    if not part:
        raise FleetError(f"{spec}: a node set is missing before or behind an operator (, ! & ^)")
    path = part[1:]
    if part[0] != "@" or (not os.path.exists(path) and _group(part)):
        return part
    try:
        with open(path, encoding="utf-8") as file:
            names = [line.split("#")[0].split() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise FleetError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return ",".join(words[0] for words in names if words)


def _group(part: str) -> bool:
    """Whether ClusterShell's own configuration has this group of nodes."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return bool(NodeSet(part))
    except NodeSetException:
        return False
