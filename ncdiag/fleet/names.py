"""Names of nodes as people write them: ClusterShell's node sets and their operators, and `@FILE` for the hosts that a file lists.

Sets are joined by `,` and narrowed by `!` (without), `&` (in both) and `^` (in one of the two), from left to right:
`gpu[01-10]!gpu03`, `@hostfile,gpu09`, `gpu[0-14/2]`. Source: ClusterShell's documentation of nodeset, extended string patterns.
"""

from __future__ import annotations

import os
import re
from typing import Any

from ncdiag.files import open_regular
from ncdiag.fleet.base import FleetError

MAX_NODES = 20_000
"""Twice the largest number that benchmarks/ has a curve to."""

MAX_FILE_BYTES = 8 << 20
MAX_NAME = 253
"""Characters of a host name. Source: RFC 1035, 2.3.4."""

_PIECE = re.compile(r"\[[^\]]*\]?|[,!&^]|[^\[,!&^]+")
"""Brackets, an operator outside them, or what stands between."""

_METHODS = {",": "update", "!": "difference_update", "&": "intersection_update", "^": "symmetric_difference_update"}
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,15})(?:-(\d{1,15})(?:/(\d{1,15}))?)?", re.ASCII)
_GROUP = re.compile(r"@(\*|[\w.:@-]+(\[[\d,-]+\])?)", re.ASCII)
"""A group's name that ClusterShell may hand to the shell commands of its configuration."""

_STRANGE = re.compile(r"""[\s'`"$\\;&<>|(){}]""")
"""What OpenSSH refuses in a host's name, too: its configuration may hand the name to a shell (%h)."""


def expand(spec: str) -> list[str]:
    """The nodes, sorted, each once; none where nothing is left. Raises FleetError that says what is wrong with `spec`."""
    from ClusterShell.NodeSet import NodeSet

    found, operator = NodeSet(), ","
    parts = _split(spec)
    _must_fit(len(parts) // 2, spec)
    for number, part in enumerate(parts):
        if number % 2:
            operator = part
            continue
        getattr(found, _METHODS[operator])(_read(part.strip(), spec))
        _must_fit(len(found), spec)
    return [_name(str(name), spec) for name in found]


def _split(spec: str) -> list[str]:
    """Sets and the operators between them, in turn."""
    parts = [""]
    for piece in _PIECE.findall(spec):
        if piece in _METHODS:
            parts += [piece, ""]
        else:
            parts[-1] += piece
    return parts


def _read(part: str, spec: str) -> Any:
    """The node set of `@FILE` (the first word of each line; a hostfile's slots are ignored), or the one written. Raises FleetError."""
    if not part:
        raise FleetError(f"{_short(spec)}: a node set is missing before or behind an operator (, ! & ^)")
    if part[0] != "@":
        return _node_set(part)
    if part == "@":
        raise FleetError(f"{_short(spec)}: the name of a file is missing behind @")
    if not os.path.exists(part[1:]) and (group := _group(part)):
        return group
    hosts = _hosts(part)
    try:
        return _node_set(",".join(hosts.values()))
    except FleetError:
        for place, host in hosts.items():
            _must_be_set(host, place)
        raise


def _must_be_set(host: str, place: str) -> None:
    """Raises FleetError that names the place."""
    try:
        _node_set(host)
    except FleetError as error:
        raise FleetError(f"{place}: {error}") from error


def _hosts(part: str) -> dict[str, str]:
    """`@FILE:LINE` -> the first word of the line. Raises FleetError."""
    if part == "@-" and not os.path.exists("-"):
        raise FleetError(
            f"{part}: standard input is not read here; save the hosts to a file and name that, as @hosts, or give the node set itself"
        )
    try:
        with open_regular(part[1:]) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FleetError(f"{_short(part)}: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES or b"\0" in content:
        raise FleetError(f"{_short(part)}: not a text file with a host name a line")
    lines = content.decode("utf-8-sig", "surrogateescape").splitlines()
    words = {f"{_short(part)}:{number}": line.split("#")[0].split() for number, line in enumerate(lines, 1)}
    return {place: _host(line, place) for place, line in words.items() if line}


def _host(words: list[str], place: str) -> str:
    """The first word of a line; `slots=8` and other settings may follow, or a number of slots and what a scheduler adds. Raises FleetError."""
    name = _name(words[0], place)
    if len(words) > 1 and "=" not in words[1] and not words[1].isdecimal():
        raise FleetError(
            f"{place}: {_short(words[1])!r} follows {_short(name)}; a line has one host or node set, and its settings (slots=8)"
        )
    return name


def _node_set(text: str) -> Any:
    """ClusterShell's set of what is written, whose size is known to fit before it is made. Raises FleetError."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    parts = _split(text)[::2]
    _must_fit(sum(_count(one) for one in parts), text)
    if any(part.startswith("@") and not _GROUP.fullmatch(part) for part in parts):
        raise FleetError(f"{_short(text)}: not a node set, as gpu[01-16] or gpu01,gpu02")
    try:
        return NodeSet(text)
    except NodeSetException as error:
        raise FleetError(f"{_short(text)}: {_short(str(error))}") from error
    except Exception as error:  # ClusterShell's own assertions and its parser's slips
        raise FleetError(f"{_short(text)}: not a node set, as gpu[01-16] or gpu01,gpu02") from error


def _count(one: str) -> int:
    """How many names one pattern stands for: the product of its brackets. Raises FleetError."""
    count = 1
    for inside in _BRACKETS.findall(one):
        count *= sum(_steps(part, one) for part in inside.split(","))
    return count


def _steps(part: str, one: str) -> int:
    match = _RANGE.fullmatch(part.strip())
    if match is None:
        raise FleetError(f"{_short(one)}: [{_short(part)}] is not a range; write it as [01-16], [1,5,9] or [0-14/2]")
    first, last, step = (int(text) if text else None for text in match.groups())
    if last is None:
        return 1
    if last < (first or 0) or step == 0:
        raise FleetError(f"{_short(one)}: [{part}] " + ("has a step of 0" if step == 0 else "ends before it begins"))
    return (last - (first or 0)) // (step or 1) + 1


def _must_fit(count: int, spec: str) -> None:
    if count > MAX_NODES:
        raise FleetError(f"{_short(spec)}: that is {count:,} nodes; {MAX_NODES:,} at most are asked at once")


def _name(name: str, spec: str) -> str:
    """A name that cannot be taken for anything but a host. Raises FleetError."""
    if name.startswith("-"):
        raise FleetError(f"{_short(spec)}: {_short(name)!r} begins with a dash, so it is no host's name")
    if len(name) > MAX_NAME or not name.isprintable() or _STRANGE.search(name):
        raise FleetError(f"{_short(spec)}: {_short(name)!r} is no host's name")
    return name


def _short(text: str) -> str:
    """For a message of one line."""
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return text if len(text) <= 100 else f"{text[:80]}… ({len(text):,} characters)"


def _group(part: str) -> Any:
    """The nodes of a group that ClusterShell's own configuration has; none where it has no such group."""
    from ClusterShell.NodeSet import NodeSet

    try:
        return NodeSet(part if _GROUP.fullmatch(part) else "")
    except Exception:  # of the group, of its source, of the program that the source calls
        return NodeSet()
