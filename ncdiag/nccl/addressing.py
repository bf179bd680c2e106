"""Which address gloo and vLLM will tell their peers: NCCL's neighbours, which do not read NCCL's settings. Pure; travels to nodes.

Source: pytorch torch/csrc/distributed/c10d/{ProcessGroupGloo,GlooDeviceFactory}.cpp and gloo/transport/tcp/device.cc (names are exact,
the first address of an interface counts, a host name's first address that this machine can bind to counts); vLLM's `get_ip`
(0.6.6 to 0.33: VLLM_HOST_IP, else the source of the route to 8.8.8.8, else of the IPv6 one, else 0.0.0.0).
"""

from __future__ import annotations

import ipaddress
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from ncdiag.nccl.interfaces import Address


class Advertised(NamedTuple):
    """What one library will tell its peers."""

    address: Optional[str]
    """None: it ends with an error, or it cannot be worked out (see `error` and `rule`)."""
    interface: Optional[str]
    """The local interface that holds the address; None where no interface does."""
    rule: str
    error: Optional[str] = None
    """What goes wrong, in the library's own words where it has some."""


def holder(addresses: Sequence[Address], address: str) -> Optional[str]:
    """The interface that holds `address`; `lo` for all of 127.0.0.0/8; None where none does."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    for local in addresses:
        if local.ip == wanted:
            return local.name
    return "lo" if wanted.is_loopback and any(local.ip.is_loopback for local in addresses) else None


def gloo(
    addresses: Sequence[Address], environ: Mapping[str, str], lookup: Optional[Mapping[str, Any]], name: Optional[str]
) -> Advertised:
    """`lookup`: the facts of the node's own name (`addresses` in getaddrinfo's order, or `error`); None when it was not looked up."""
    wanted = environ.get("GLOO_SOCKET_IFNAME", "")
    if len(wanted) > 1:
        return _gloo_by_name(addresses, wanted)
    rule = "the address that the host name %s resolves to" % (name or "")
    if lookup is None:
        return Advertised(None, None, rule + " (not looked up)")
    for address in lookup.get("addresses") or ():
        interface = holder(addresses, address)
        if interface is not None:
            return Advertised(address, interface, rule)
    return Advertised(
        "127.0.0.1",
        "lo",
        rule,
        "Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
    )


def _gloo_by_name(addresses: Sequence[Address], wanted: str) -> Advertised:
    rule = "GLOO_SOCKET_IFNAME=" + wanted
    for name in wanted.split(","):
        if not any(address.name == name for address in addresses):
            return Advertised(None, None, rule, "Unable to find address for: " + name)
    first = next(address for address in addresses if address.name == wanted.split(",")[0])
    return Advertised(first.address, first.name, rule)


def vllm(addresses: Sequence[Address], environ: Mapping[str, str], sources: Optional[Mapping[str, Any]]) -> Advertised:
    """`sources`: facts of the default route, `{"inet": address or None, "inet6": …}`; None when they were not read."""
    told = environ.get("VLLM_HOST_IP", "")
    if told:
        return Advertised(told, holder(addresses, told), "VLLM_HOST_IP=" + told)
    if sources is None:
        return Advertised(None, None, "the source address of the default route (not read)")
    for family, target in (("inet", "8.8.8.8"), ("inet6", "2001:4860:4860::8888")):
        address = sources.get(family)
        if address:
            return Advertised(address, holder(addresses, address), "the source address of the route to " + target)
    return Advertised(
        "0.0.0.0", None, "no route to the outside", "Failed to get the IP address, using 0.0.0.0 by default."
    )
