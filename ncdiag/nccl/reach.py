"""Whether an address can be reached from a node, as far as its own addresses and routes tell. Pure; travels to nodes."""

from __future__ import annotations

import functools
import ipaddress
from typing import Any, Mapping, Optional, Sequence

from ncdiag.nccl.interfaces import Address

MAIN_TABLE = 254


def way(addresses: Sequence[Address], routes: Optional[Sequence[Mapping[str, Any]]], target: str) -> Optional[str]:
    """`connected` (in a network of the node itself), `route` (a route of its own), `default` (only the default route), or None: no way.

    `routes`: facts of the default route, None when they were not read; then what is not connected counts as `default`.
    """
    if any(address.holds(target) for address in addresses if not address.address.startswith("fe80:")):
        return "connected"
    if routes is None:
        return "default"
    best = -1
    wanted = ipaddress.ip_address(target)
    for route in routes:
        network = ipaddress.ip_network("%s/%d" % (route["to"], route["bits"]), strict=False)
        if network.version == wanted.version and wanted in network:
            best = max(best, route["bits"])
    return None if best < 0 else "route" if best else "default"


def has_default(routes: Optional[Sequence[Mapping[str, Any]]], address: str) -> bool:
    """Whether a default route of the address's family is there, so that `way` finds one to anything; also where routes were not read."""
    family = "inet6" if ":" in address else "inet"
    return routes is None or any(route["bits"] == 0 and route["family"] == family for route in routes)


@functools.lru_cache(maxsize=1 << 16)
def useless(address: str) -> Optional[str]:
    """Why no other machine can use the address (`loopback`, `link-local`, `unspecified`), None when one may."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    for word, is_so in (
        ("loopback", wanted.is_loopback),
        ("link-local", wanted.is_link_local),
        ("unspecified", wanted.is_unspecified),
    ):
        if is_so:
            return word
    return None


def useless_words(address: str) -> str:
    """`a loopback address`, `a link-local address` or `an unspecified address`, of one that is useless."""
    word = useless(address) or "usable"
    return f"an {word} address" if word == "unspecified" else f"a {word} address"
