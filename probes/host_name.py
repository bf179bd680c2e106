"""The node's own name resolves to an address of this node that the others can reach.

gloo, and whatever publishes `hostname`, takes the first address that the name resolves to. Debian's installer writes
127.0.1.1 for it: then every node tells its peers a loopback address. Two nodes of one name cannot be told apart in logs and look-ups.

Source: gloo `createDefaultDevice`; getaddrinfo(3) of gethostname(2); /etc/hosts, /etc/resolv.conf, /etc/nsswitch.conf.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn
from ncdiag.nccl.addressing import holder
from ncdiag.nccl.lookup import look_up
from ncdiag.nccl.node import addresses as addresses_of
from ncdiag.nccl.node import several, to_type
from ncdiag.nodeset import fold

SLOW_S = 0.5
"""A look-up of the node's own name that takes longer goes to a server that is slow or away; from /etc/hosts it takes under 1 ms."""


class Facts(TypedDict):
    name: str
    addresses: Optional[List[str]]
    """What the name resolves to, in getaddrinfo's order; None when it was not or could not be looked up."""
    error: Optional[str]
    """The resolver's own words; None when it answered."""
    failed: str
    """`""`, `unknown-name`, `no-answer` (limit reached, or a temporary failure), `not-asked`."""
    took_s: Optional[float]
    hosts: List[Dict[str, Any]]
    """Lines of /etc/hosts that name this node: `line` number and `text`."""
    nameservers: List[str]


def collect(host: Host) -> Facts:
    name = host.node
    facts: Dict[str, Any] = {
        "name": name,
        "addresses": None,
        "error": None,
        "failed": "not-asked",
        "took_s": None,
        "hosts": _hosts(host, name),
        "nameservers": _nameservers(host),
    }
    try:
        facts.update(host.ask("look-up of the node's own name", lambda: look_up(name)))
    except HostError as error:
        facts["error"] = str(error)
    return facts  # type: ignore[return-value]


def _hosts(host: Host, name: str) -> List[Dict[str, Any]]:
    try:
        text = host.read("/etc/hosts")
    except HostError:
        return []
    wanted = {name.lower(), name.lower().partition(".")[0]}
    return [
        {"line": number, "text": line.strip()}
        for number, line in enumerate(text.splitlines(), 1)
        if wanted & set(line.partition("#")[0].lower().split()[1:])
    ]


def _nameservers(host: Host) -> List[str]:
    try:
        return re.findall(r"^nameserver\s+(\S+)", host.read("/etc/resolv.conf"), re.M)
    except HostError:
        return []


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        yield _judge_node(snapshot, node, facts)
    yield from _judge_names(snapshot)


def _judge_node(snapshot: Snapshot, node: str, facts: Facts) -> Finding:
    name, found = facts["name"], facts["addresses"]
    seen = {
        "name": name,
        "addresses": found,
        "took_s": facts["took_s"],
        "error": facts["error"],
        "hosts": facts["hosts"],
    }
    origin = (
        "; ".join("/etc/hosts line %d: %s" % (entry["line"], entry["text"]) for entry in facts["hosts"])
        or "getaddrinfo(%s)" % name
    )
    own, link = to_type(snapshot, node)
    line = "add to /etc/hosts on every node: %s %s" % (own, name)
    if facts["failed"] == "not-asked":
        return _from_hosts_file(node, facts, seen, line)
    if facts["failed"] == "no-answer":
        return fail(
            "the look-up of this node's own name %s failed: %s" % (name, facts["error"]),
            node,
            observed=seen,
            source="getaddrinfo(%s), /etc/resolv.conf" % name,
            expected="an answer within %g s" % SLOW_S,
            cause="dns-unresponsive",
            remedy="%s; and see that the name servers answer (%s): getent hosts %s"
            % (line, ", ".join(facts["nameservers"]) or "none in /etc/resolv.conf", name),
        )
    if not found:
        return warn(
            "this node's own name %s does not resolve (%s): gloo falls back to loopback" % (name, facts["error"]),
            node,
            observed=seen,
            source="getaddrinfo(%s)" % name,
            expected="an address of this node",
            cause="hostname-resolves-to-loopback",
            remedy="%s; or export GLOO_SOCKET_IFNAME=%s" % (line, link),
        )
    told = ((snapshot.facts(node, "framework-environment") or {}).get("environ") or {}).get("GLOO_SOCKET_IFNAME", "")
    if len(told) > 1 and (_is_loopback(found[0]) or not holder(addresses_of(snapshot, node), found[0])):
        return ok(
            "this node's own name %s resolves to %s; gloo goes by GLOO_SOCKET_IFNAME=%s all the same"
            % (name, found[0], told),
            node,
            observed=seen,
            source=origin,
        )
    if _is_loopback(found[0]):
        return _loopback(snapshot, node, name, found, seen, origin)
    local = addresses_of(snapshot, node)
    if local and holder(local, found[0]) is None:
        return warn(
            "this node's own name %s resolves to %s, which no interface here holds" % (name, found[0]),
            node,
            observed=seen,
            source=origin,
            expected="one of " + ", ".join(_reachable(local)),
            cause="node-ip-wrong-interface",
            remedy="correct the entry of %s in /etc/hosts or DNS, or export GLOO_SOCKET_IFNAME=%s" % (name, link),
        )
    if facts["took_s"] is not None and facts["took_s"] > SLOW_S:
        return warn(
            "the look-up of this node's own name %s took %.1f s" % (name, facts["took_s"]),
            node,
            observed=seen,
            source=origin,
            expected="under %g s" % SLOW_S,
            cause="dns-unresponsive",
            remedy=line,
        )
    return ok("this node's name %s resolves to %s" % (name, found[0]), node, observed=seen, source=origin)


def _loopback(snapshot: Snapshot, node: str, name: str, found: List[str], seen: Dict[str, Any], origin: str) -> Finding:
    """A loopback address is fatal between nodes and harmless on one."""
    summary = "this node's own name %s resolves to %s: gloo will tell its peers a loopback address" % (name, found[0])
    local = addresses_of(snapshot, node)
    reachable = _reachable(local)
    own, link = to_type(snapshot, node)
    return (fail if several(snapshot) else warn)(
        summary + ("" if several(snapshot) else " (harmless on one node alone)"),
        node,
        observed=seen,
        source=origin,
        expected="one of " + ", ".join(reachable) if reachable else "an address that the other nodes reach",
        cause="hostname-resolves-to-loopback",
        remedy="in /etc/hosts replace the loopback entry of %s by: %s %s; or export GLOO_SOCKET_IFNAME=%s"
        % (name, own, name, link),
    )


def _from_hosts_file(node: str, facts: Facts, seen: Dict[str, Any], line: str) -> Finding:
    for entry in facts["hosts"]:
        if _is_loopback(entry["text"].split()[0]):
            return warn(
                "/etc/hosts gives this node's own name %s the loopback address %s"
                % (facts["name"], entry["text"].split()[0]),
                node,
                observed=seen,
                source="/etc/hosts line %d" % entry["line"],
                expected="an address that the other nodes reach",
                cause="hostname-resolves-to-loopback",
                remedy="replace that line; " + line,
            )
    return unknown(
        "what this node's own name %s resolves to was not asked" % facts["name"],
        node,
        source="getaddrinfo",
        remedy="run ncdiag on the node itself",
    )


def _judge_names(snapshot: Snapshot) -> Iterator[Finding]:
    """Names that several nodes share, and addresses that several names lead to."""
    by_name: Dict[str, List[str]] = {}
    by_address: Dict[str, List[str]] = {}
    for node, facts in snapshot.each(PROBE.id):
        by_name.setdefault(facts["name"], []).append(node)
        for address in (facts["addresses"] or [])[:1]:
            by_address.setdefault(address, []).append(node)
    for name, nodes in by_name.items():
        if len(nodes) > 1:
            yield warn(
                "%d nodes call themselves %s: %s" % (len(nodes), name, fold(nodes)),
                nodes[0],
                observed={"name": name, "nodes": nodes},
                source="gethostname",
                expected="a name of its own for each node",
                cause="node-ip-wrong-interface",
                remedy="hostnamectl set-hostname <name> on all but one of them, and start the engine again",
            )
    for address, nodes in by_address.items():
        if len(nodes) > 1 and not _is_loopback(address):
            yield fail(
                "the names of %s resolve to the same address %s" % (fold(nodes), address),
                nodes[0],
                observed={"address": address, "nodes": nodes},
                source="getaddrinfo",
                expected="an address of its own for each node",
                cause="node-ip-wrong-interface",
                remedy="correct /etc/hosts or DNS for %s" % fold(nodes),
            )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _reachable(local: List[Any]) -> List[str]:
    return [
        entry.address for entry in local if not _is_loopback(entry.address) and not entry.address.startswith("fe80:")
    ]


PROBE = Probe(
    "host-name",
    "the node's own name resolves to an address that the others reach",
    judge,
    collect,
    needs=("interfaces", "framework-environment"),
)
