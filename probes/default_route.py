"""A default route is there, on the network that the ranks use.

vLLM, Ray and many start scripts learn "their" address by asking the kernel which source address it would use towards
8.8.8.8. Without a default route vLLM advertises 0.0.0.0; with one on the management network it advertises that one.

Source: vLLM `get_ip`, Ray `node_ip_address_from_perspective`; rtnetlink RTM_GETROUTE, else /proc/net/route.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag import rtnetlink
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, unknown, warn
from ncdiag.nccl.namespace import must_be_ours
from ncdiag.nccl.node import to_type

OUTSIDE = {"inet": (socket.AF_INET, "8.8.8.8"), "inet6": (socket.AF_INET6, "2001:4860:4860::8888")}
"""Addresses that vLLM and Ray ask the route to. A UDP connect sends nothing."""

MAIN_TABLE = 254


class Facts(TypedDict):
    source: str
    routes: List[Dict[str, Any]]
    """Unicast routes: family, table, to, bits, gateway, interface, source, metric."""
    sources: Optional[Dict[str, Optional[str]]]
    """Family -> the kernel's source address towards the outside, None without a route; None when it was not asked."""


def collect(host: Host) -> Facts:
    must_be_ours(host)
    try:
        routes, source = host.ask("rtnetlink routes", rtnetlink.routes), "rtnetlink"
    except HostError:
        routes, source = _proc(host), "/proc/net/route"
    try:
        sources = host.ask("source address towards the outside", _sources)
    except HostError:
        sources = None
    return {"source": source, "routes": routes, "sources": sources}


def _sources() -> Dict[str, Optional[str]]:
    found: Dict[str, Optional[str]] = {}
    for name, (family, target) in OUTSIDE.items():
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 80))
                found[name] = probe.getsockname()[0]
        except OSError:
            found[name] = None
    return found


def _proc(host: Host) -> List[Dict[str, Any]]:
    def dotted(word: str) -> str:
        return socket.inet_ntoa(struct.pack("=I", int(word, 16)))

    found = []
    for line in host.read("/proc/net/route").splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8 or not int(fields[3], 16) & 1 or int(fields[3], 16) & 0x200:
            continue
        found.append(
            {
                "family": "inet",
                "table": MAIN_TABLE,
                "to": dotted(fields[1]),
                "bits": bin(int(fields[7], 16)).count("1"),
                "gateway": dotted(fields[2]) if fields[2] != "00000000" else None,
                "interface": fields[0],
                "source": None,
                "metric": int(fields[6]),
            }
        )
    return found


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        defaults = [route for route in facts["routes"] if route["bits"] == 0 and route["table"] == MAIN_TABLE]
        best = _best(defaults, "inet") or _best(defaults, "inet6")
        told = facts["sources"]
        seen = {"routes": [_shown(route) for route in defaults], "source_addresses": told}
        if best is None and told is not None and not any(told.values()):
            yield warn(
                "there is no default route: vLLM without VLLM_HOST_IP will advertise 0.0.0.0, and Ray its host name's address",
                node,
                source=facts["source"],
                observed=seen,
                expected="a default route, or the address named",
                cause="node-ip-wrong-interface",
                remedy="export VLLM_HOST_IP=%s (each node its own), and start Ray with --node-ip-address=%s"
                % ((to_type(snapshot, node)[0],) * 2),
            )
        elif best is None and told is not None:
            yield ok(
                "no default route is in the main table, but traffic to the outside leaves from %s (a routing rule, or another table)"
                % " and ".join(sorted(filter(None, told.values()))),
                node,
                source=facts["source"],
                observed=seen,
            )
        elif best is None:
            yield unknown(
                "no default route is in the main table; where traffic to the outside leaves was not asked",
                node,
                source=facts["source"],
                remedy="run ncdiag on the node itself",
            )
        elif len({route["interface"] for route in _equal(defaults, best)}) > 1:
            names = sorted({str(route["interface"]) for route in _equal(defaults, best)})
            yield warn(
                "default routes of the same metric leave by %s: which address vLLM and Ray advertise is chance"
                % " and ".join(names),
                node,
                source=facts["source"],
                observed=seen,
                expected="one default route, or the address named",
                cause="node-ip-wrong-interface",
                remedy="export VLLM_HOST_IP=%s (each node its own, on the ranks' network), or give the routes different metrics: %s"
                % (to_type(snapshot, node)[0], _replace(_equal(defaults, best))),
            )
        else:
            yield ok("the default route leaves by %s" % _shown(best), node, source=facts["source"], observed=seen)


def _replace(routes: List[Dict[str, Any]]) -> str:
    """The command that makes the last of them the second choice."""
    last = routes[-1]
    via = " via %s" % last["gateway"] if last["gateway"] else ""
    return "ip route replace default%s dev %s metric %d" % (via, last["interface"], last["metric"] + 100)


def _best(routes: List[Dict[str, Any]], family: str) -> Optional[Dict[str, Any]]:
    return min(
        (route for route in routes if route["family"] == family), key=lambda route: route["metric"], default=None
    )


def _equal(routes: List[Dict[str, Any]], best: Dict[str, Any]) -> List[Dict[str, Any]]:
    return [route for route in routes if route["family"] == best["family"] and route["metric"] == best["metric"]]


def _shown(route: Dict[str, Any]) -> str:
    return str(route["interface"]) + (" via %s" % route["gateway"] if route["gateway"] else "")


PROBE = Probe("default-route", "a default route leads to the ranks' network", judge, collect)
