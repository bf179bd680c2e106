"""The addresses that a node is told to use are its own, and reach the others: MASTER_ADDR, VLLM_HOST_IP, Ray's node address.

A wrong one lets every NCCL stage pass and the start hang all the same: vLLM's message queues and Ray's workers connect to the
address that was advertised. Ray and vLLM must name the same address, and no two nodes may name one.

Source: environment; the command line of a running raylet (`--node_ip_address`, `--gcs-address`); addresses of the node.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag import engine, parity
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, warn
from ncdiag.nccl import interfaces, node
from ncdiag.nccl.addressing import holder
from ncdiag.nccl.lookup import look_up
from ncdiag.nccl.reach import useless, useless_words, way
from ncdiag.nodeset import fold

OWN = ("VLLM_HOST_IP", "RAY_NODE_IP_ADDRESS")
"""Variables that name this node's own address."""
MASTER = ("MASTER_ADDR", "VLLM_DP_MASTER_IP")
"""Variables that name one node for all."""
RAYLET = re.compile(r"/raylet(?:\0|$)")
OPTION = re.compile(r"\0--(node[_-]ip[_-]address|gcs[_-]address)=([^\0 ]+)(?=\0|$)")
"""An argument of its own; the same words stand inside the commands that the raylet is to start."""
WRONG = "node-ip-wrong-interface"


class Raylet(TypedDict):
    """A Ray node manager that runs here. None: its command line does not say."""

    pid: int
    node_ip: Optional[str]
    gcs_address: Optional[str]


class Facts(TypedDict):
    raylets: List[Raylet]
    lookups: Dict[str, Dict[str, Any]]
    """Host name in one of MASTER or OWN -> what it resolves to here (see ncdiag.nccl.lookup)."""


def collect(host: Host) -> Facts:
    try:
        environ = host.environ()
    except HostError:
        environ = {}
    names = {environ[name] for name in (*MASTER, *OWN) if environ.get(name) and not _is_address(environ[name])}
    lookups = {}
    for name in sorted(names):
        try:
            lookups[name] = host.ask("look-up of " + name, lambda name=name: look_up(name))  # type: ignore[misc]
        except HostError:
            continue
    raylets: List[Raylet] = []
    for pid, line in engine.processes(host):
        if RAYLET.search(line.split("\0--")[0]) and engine.in_our_network(host, pid):
            told = {key.replace("-", "_"): value for key, value in OPTION.findall(line)}
            raylets.append({"pid": pid, "node_ip": told.get("node_ip_address"), "gcs_address": told.get("gcs_address")})
    return {"raylets": raylets, "lookups": lookups}


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    networks = node.Networks(snapshot)
    for name, facts in snapshot.each(PROBE.id):
        environ = (snapshot.facts(name, "framework-environment") or {}).get("environ") or {}
        told = {variable: environ[variable] for variable in (*OWN, *MASTER) if environ.get(variable)}
        for raylet in facts["raylets"]:
            if raylet["node_ip"]:
                told["raylet"] = raylet["node_ip"]
        found = [
            finding
            for variable, value in told.items()
            for finding in (_judge_master if variable in MASTER else _judge_own)(
                snapshot, name, facts, variable, value, networks
            )
        ]
        found.extend(_ray_against_vllm(name, told))
        yield from found
        if not found:
            yield (
                ok(
                    "%s" % ", ".join("%s=%s" % item for item in told.items()),
                    name,
                    source="environment, raylet",
                    observed=told,
                )
                if told
                else skip(
                    "no address is named here: no MASTER_ADDR, no VLLM_HOST_IP, no running raylet",
                    name,
                    source="environment, /proc",
                )
            )
    yield from _between(snapshot)


def _said(variable: str, value: str) -> str:
    return "the raylet's --node-ip-address is %s" % value if variable == "raylet" else "%s is %s" % (variable, value)


def _how(variable: str, addresses: List[interfaces.Address]) -> str:
    """What to type, with the address where only one comes into question."""
    good = [address.address for address in addresses if not useless(address.address) and address.running]
    address = (
        good[0]
        if len(good) == 1
        else "<this node's address on the peers' network%s>" % (": " + ", ".join(good) if good else "")
    )
    if variable == "raylet":
        return "ray stop; ray start … --node-ip-address=" + address
    return "export %s=%s" % (variable, address)


def _judge_own(
    snapshot: Snapshot, name: str, facts: Facts, variable: str, value: str, networks: node.Networks
) -> Iterator[Finding]:
    local = node.addresses(snapshot, name)
    source = "/proc/PID/cmdline of the raylet" if variable == "raylet" else "environment"
    shown = [address.address for address in local]
    address = value if _is_address(value) else ((facts["lookups"].get(value) or {}).get("addresses") or [None])[0]
    where = {"setting": variable}
    if address is None:
        yield warn(
            "%s, which is no address%s"
            % (_said(variable, value), " and does not resolve here" if value in facts["lookups"] else ""),
            name,
            source=source,
            observed=value,
            expected="an address of this node",
            cause=WRONG,
            remedy=_how(variable, local),
            **where,
        )
    elif useless(address):
        yield (fail if networks.several or useless(address) == "unspecified" else warn)(
            "%s, %s that no other node can use" % (_said(variable, value), useless_words(address)),
            name,
            source=source,
            observed=value,
            expected="an address that the peers reach",
            cause=WRONG,
            remedy=_how(variable, local),
            **where,
        )
    elif local and holder(local, address) is None:
        yield fail(
            "%s, which no interface of this node holds (it has %s)" % (_said(variable, value), ", ".join(shown)),
            name,
            source=source,
            observed=value,
            expected="one of " + ", ".join(shown),
            cause=WRONG,
            remedy=_how(variable, local),
            **where,
        )
    else:
        yield from _other_network(snapshot, name, variable, value, address, source, networks)


def _other_network(
    snapshot: Snapshot, name: str, variable: str, value: str, address: str, source: str, networks: node.Networks
) -> Iterator[Finding]:
    """On another network than NCCL's, and on one that the other nodes are not in."""
    local = node.addresses(snapshot, name)
    mine = next((entry for entry in local if entry.address == address), None)
    if mine is None:
        return
    values = {key: setting.value for key, setting in (node.settings(snapshot, name) or {}).items()}
    chosen = interfaces.bootstrap(local, values, node.release(snapshot, name) or (2, 30, 7)).chosen
    if not chosen or chosen[0].name == mine.name:
        return
    outside = [
        peer
        for peer in networks.without(mine.network)
        if not any(mine.holds(entry.address) for entry in node.addresses(snapshot, peer))
    ]
    if outside:
        yield warn(
            "%s on %s, a network that %s is not in; NCCL takes %s (%s)"
            % (_said(variable, value), mine.name, fold(outside), chosen[0].name, chosen[0].address),
            name,
            source=source,
            observed=value,
            expected="an address in a network of all nodes",
            cause=WRONG,
            remedy=_how(variable, [chosen[0]]),
            setting=variable,
        )


def _judge_master(
    snapshot: Snapshot, name: str, facts: Facts, variable: str, value: str, networks: node.Networks
) -> Iterator[Finding]:
    lookup = facts["lookups"].get(value)
    address = value if _is_address(value) else ((lookup or {}).get("addresses") or [None])[0]
    where = {"setting": variable}
    advice = "export %s=<the first node's address on the peers' network> on every node" % variable
    if address is None and lookup is not None:
        slow = lookup.get("failed") == "no-answer"
        yield fail(
            "%s, and the look-up here failed: %s" % (_said(variable, value), lookup.get("error")),
            name,
            source="getaddrinfo(%s)" % value,
            observed=lookup,
            expected="an address",
            cause="dns-unresponsive" if slow else WRONG,
            remedy="%s, or add %s to /etc/hosts" % (advice, value),
            **where,
        )
    elif address is not None and networks.several and useless(address):
        yield fail(
            "%s%s, %s: each node would look for the store on itself"
            % (_said(variable, value), " (%s)" % address if address != value else "", useless_words(address)),
            name,
            source="environment",
            observed=value,
            expected="an address that every node reaches",
            cause=WRONG,
            remedy=advice,
            **where,
        )
    elif address is not None and not useless(address):
        local, route = node.addresses(snapshot, name), snapshot.facts(name, "default-route")
        if local and route and way(local, route["routes"], address) is None:
            yield fail(
                "%s, and this node has no route to it" % _said(variable, value),
                name,
                source="routes",
                observed=value,
                expected="an address in a network of this node",
                cause=WRONG,
                remedy=advice,
                **where,
            )


def _ray_against_vllm(name: str, told: Dict[str, str]) -> Iterator[Finding]:
    ray, vllm = told.get("raylet"), told.get("VLLM_HOST_IP")
    if ray and vllm and ray != vllm:
        yield warn(
            "Ray knows this node as %s, VLLM_HOST_IP says %s: vLLM does not find its own workers" % (ray, vllm),
            name,
            source="/proc/PID/cmdline of the raylet, environment",
            observed={"ray": ray, "vllm": vllm},
            expected="one address for both",
            cause=WRONG,
            remedy="export VLLM_HOST_IP=%s, or: ray stop; ray start … --node-ip-address=%s" % (ray, vllm),
            setting="VLLM_HOST_IP",
        )


def _between(snapshot: Snapshot) -> Iterator[Finding]:
    for variable in (*MASTER, *OWN, "raylet"):
        values: Dict[str, List[str]] = {}
        for name, facts in snapshot.each(PROBE.id):
            environ = (snapshot.facts(name, "framework-environment") or {}).get("environ") or {}
            value = (
                next((raylet["node_ip"] for raylet in facts["raylets"]), None)
                if variable == "raylet"
                else environ.get(variable)
            )
            if value:
                values.setdefault(value, []).append(name)
        if variable in MASTER and len(values) > 1:
            yield fail(
                "%s differs between nodes: %s" % (variable, parity.shared(values)),
                min(values.values(), key=len)[0],
                source="environment of each node",
                observed=values,
                expected="one value on all nodes",
                cause=WRONG,
                remedy="export %s=<the first node's address> alike on every node" % variable,
                setting=variable,
            )
        for value, names in values.items():
            if variable not in MASTER and len(names) > 1 and not useless(value):
                yield fail(
                    "%s on %s: each node needs an address of its own" % (_said(variable, value), fold(names)),
                    names[1],
                    source="environment of each node",
                    observed={value: names},
                    expected="an address of its own for each node",
                    cause=WRONG,
                    remedy=_how(variable, node.addresses(snapshot, names[1])),
                    setting=variable,
                )


PROBE = Probe(
    "node-address",
    "the addresses that nodes are told to use are their own and reach the others",
    judge,
    collect,
    needs=("interfaces", "framework-environment", "default-route", "nccl-environment", "nccl-conf-files"),
)
