"""Which of many addresses a node has no way to. For every node against every other: cost grows with the nodes, not with the pairs.

Pure; travels to nodes. One address alone: `ncdiag.nccl.reach.way`.
"""

from __future__ import annotations

import bisect
import functools
import ipaddress
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ncdiag.nccl.interfaces import Address
from ncdiag.nccl.reach import useless

Range = Tuple[int, int, int]
"""IP version, first and last address of a network."""


class Ways:
    """`targets`: addresses of the peers; those that no other machine can use at all are left out."""

    def __init__(self, targets: Iterable[str]) -> None:
        self._sorted: Dict[int, List[Tuple[int, str]]] = {4: [], 6: []}
        for target in set(targets):
            if not useless(target):
                address = ipaddress.ip_address(target.partition("%")[0])
                self._sorted[address.version].append((int(address), target))
        for known in self._sorted.values():
            known.sort()
        self._answers: Dict[Tuple[Range, ...], List[str]] = {}

    def missing(self, addresses: Sequence[Address], routes: Optional[Sequence[Mapping[str, Any]]]) -> List[str]:
        """The targets to which neither an own network nor a route leads; none where the routes were not read."""
        if routes is None:
            return []
        ranges = tuple(
            sorted(
                {
                    _range(address.address, address.prefix)
                    for address in addresses
                    if not address.address.startswith("fe80:")
                }
                | {_range(route["to"], route["bits"]) for route in routes}
            )
        )
        if ranges not in self._answers:
            self._answers[ranges] = self._uncovered(ranges)
        return self._answers[ranges]

    def _uncovered(self, ranges: Tuple[Range, ...]) -> List[str]:
        """The targets between the ranges, which are sorted."""
        found: List[str] = []
        for version, known in self._sorted.items():
            at = 0
            for _version, first, last in (entry for entry in ranges if entry[0] == version):
                start = bisect.bisect_left(known, (first, ""))
                if start > at:
                    found.extend(target for _number, target in known[at:start])
                at = max(at, bisect.bisect_left(known, (last + 1, "")))
            found.extend(target for _number, target in known[at:])
        return found


@functools.lru_cache(maxsize=65536)
def _range(address: str, bits: int) -> Range:
    network = ipaddress.ip_network("%s/%d" % (address.partition("%")[0], bits), strict=False)
    return network.version, int(network.network_address), int(network.broadcast_address)
