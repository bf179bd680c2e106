"""NCCL_IB_HCA in all its forms, and the ports that NCCL's verbs transport takes.

Source: src/misc/utils.cc (parseStringList, matchIfList) and ncclIbInit of v2.18.3-1 to v2.30.7-1.
"""

from __future__ import annotations

import re
from typing import List, Mapping, NamedTuple, Optional, Sequence

from ncdiag.nccl.settings import integer
from ncdiag.nccl.version import NEWEST_READ, Version

_LEADING_NUMBER = re.compile(r"\s*[+-]?\d+")


class Port(NamedTuple):
    """One port as the filter sees it."""

    device: str
    number: int
    active: bool = True
    link_layer: str = "InfiniBand"  # as in sysfs: InfiniBand, Ethernet, Unknown


class Entry(NamedTuple):
    name: str
    port: int  # -1: every port


class Filter(NamedTuple):
    """`exclude`: what matches is left out; `exact`: whole names instead of prefixes."""

    exclude: bool
    exact: bool
    entries: List[Entry]

    def matches(self, device: str, port: int) -> bool:
        """True if some entry names this port; an empty list names every port."""
        if not self.entries:
            return True
        return any(self.names(entry, device) and entry.port in (-1, port) for entry in self.entries)

    def takes(self, device: str, port: int) -> bool:
        return self.matches(device, port) != self.exclude

    def names(self, entry: Entry, device: str) -> bool:
        return device == entry.name if self.exact else device.startswith(entry.name)


class Selection(NamedTuple):
    """`taken` in the order given; `left_out`: port -> why; `notes`: what in the setting does nothing or more than meant."""

    taken: List[Port]
    left_out: List[str]
    notes: List[str]


def parse(value: Optional[str], version: Optional[Version] = None) -> Filter:
    """`^` counts before `=`, both once and at the very start; None and "" take everything, a lone `^` nothing."""
    text = value or ""
    exclude = text.startswith("^")
    text = text[1:] if exclude else text
    exact = text.startswith("=")
    text = text[1:] if exact else text
    entries = []
    for piece in text.split(","):
        name, colon, rest = piece.partition(":")
        if name:
            entries.append(Entry(name, _port(rest.split(":")[0], bool(colon), version or NEWEST_READ)))
    return Filter(exclude, exact, entries)


def _port(text: str, given: bool, version: Version) -> int:
    """An empty port means every port from 2.30.7; before, it is 0 and matches none."""
    if not given or (not text and version >= (2, 30, 7)):
        return -1
    match = _LEADING_NUMBER.match(text)
    return int(match.group()[:9]) if match else 0


def select(ports: Sequence[Port], value: Optional[str], version: Optional[Version] = None) -> Selection:
    """Which of a node's ports NCCL uses, before it merges the ports of one card."""
    chosen = parse(value, version)
    taken: List[Port] = []
    left_out: List[str] = []
    for port in ports:
        name = f"{port.device}:{port.number}"
        if not chosen.takes(port.device, port.number):
            left_out.append(f"{name} not in NCCL_IB_HCA")
        elif not port.active:
            left_out.append(f"{name} not ACTIVE")
        elif port.link_layer not in ("InfiniBand", "Ethernet"):
            left_out.append(f"{name} has link layer {port.link_layer}")
        else:
            taken.append(port)
    return Selection(taken, left_out, _notes(chosen, value or "", ports))


def _notes(chosen: Filter, value: str, ports: Sequence[Port]) -> List[str]:
    notes = []
    if value.startswith("=^"):
        notes.append("`=^` is taken as a name that starts with ^; to exclude exact names write `^=`")
    if chosen.exclude and not chosen.entries:
        notes.append("a lone ^ excludes every device")
    for entry in chosen.entries:
        label = entry.name if entry.port == -1 else f"{entry.name}:{entry.port}"
        if entry.name != entry.name.strip():
            notes.append(f"{label!r} has a space in it, which NCCL takes as part of the name")
        hit = sorted({port.device for port in ports if chosen.names(entry, port.device)})
        if not hit and not chosen.exclude:  # a list of what to leave out is often written for several kinds of machines
            notes.append(f"{label} matches no device of this node")
        elif hit and not any(chosen.names(entry, port.device) and entry.port in (-1, port.number) for port in ports):
            notes.append(f"{label} names a port that {', '.join(hit)} does not have")
        elif not chosen.exact and len(hit) > 1 and entry.name in hit:
            more = ", ".join(device for device in hit if device != entry.name)
            notes.append(f"{entry.name} is a prefix and also takes {more}; write ={entry.name} for it alone")
    return notes


def disabled(environ: Mapping[str, str]) -> bool:
    """NCCL_IB_DISABLE as a number other than 0; `true` is 0 and disables nothing."""
    return bool(integer(environ.get("NCCL_IB_DISABLE", "")))
