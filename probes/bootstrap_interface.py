"""NCCL, gloo and vLLM each take an interface over which the other nodes can be reached, and the nodes' choices fit together.

NCCL connects its ranks over TCP before anything else, over the interface that NCCL_SOCKET_IFNAME or its default order picks; gloo
goes by GLOO_SOCKET_IFNAME or the host name, vLLM by VLLM_HOST_IP or the default route. A docker0 or VPN interface that comes first
is the most frequent reason for a start that hangs. The choice is worked out here as each of the three makes it, by its own rules.

Source: NVIDIA/nccl src/misc/socket.cc, src/bootstrap.cc; gloo transport/tcp/device.cc; vLLM get_ip; addresses in getifaddrs(3) order.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

from ncdiag import parity
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn
from ncdiag.nccl import addressing, interfaces, node
from ncdiag.nccl.addressing import Advertised
from ncdiag.nccl.interfaces import Address, Choice
from ncdiag.nccl.reach import useless, useless_words
from ncdiag.nccl.version import NEWEST_READ, dotted
from ncdiag.nccl.ways import Ways
from ncdiag.nodeset import fold

JUST_BEFORE = (2, 28, 2)
"""Stands for the releases before the rules changed in 2.28.3."""

MAX_NAMED = 32
"""Peers without a way that are listed one by one."""

TUNNELS = ("tunnel", "overlay")
"""Words in the nature of a virtual link that can lead to other machines, slowly; the others end on this one."""


class View(NamedTuple):
    """One node with its three choices."""

    name: str
    addresses: List[Address]
    natures: Dict[str, Optional[str]]
    environ_read: bool
    nccl: Choice
    before: Choice
    """NCCL's choice by the rules before 2.28.3; the same as `nccl` where the release is known."""
    gloo: Advertised
    vllm: Advertised
    routes: Optional[List[Dict[str, Any]]]

    @property
    def chosen(self) -> Optional[Address]:
        return self.nccl.chosen[0] if self.nccl.chosen else None

    def nature(self, interface: Optional[str]) -> Optional[str]:
        return self.natures.get((interface or "").partition(":")[0])

    @property
    def good(self) -> List[Address]:
        """Addresses over which other machines can be reached, the first of each interface."""
        found: Dict[str, Address] = {}
        for address in self.addresses:
            if address.running and not useless(address.address) and self.nature(address.name) is None:
                found.setdefault(address.name, address)
        return list(found.values())


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    views = [_view(snapshot, name) for name, _facts in snapshot.each("interfaces")]
    several = node.several(snapshot)
    shared = _shared(views)
    for view in views:
        found = [
            *_judge_nccl(view, several, shared),
            *_judge_other("gloo", view, view.gloo, several, shared),
            *_judge_other("vLLM", view, view.vllm, several, shared),
        ]
        yield from found
        if not any(finding.status.severity > 1 for finding in found):
            yield _settled(view)
    if len(views) > 1:
        yield from _between(views, shared)


def _view(snapshot: Snapshot, name: str) -> View:
    addresses = node.addresses(snapshot, name)
    settings = node.settings(snapshot, name)
    values = {key: setting.value for key, setting in (settings or {}).items()}
    release = node.release(snapshot, name)
    others = (snapshot.facts(name, "framework-environment") or {}).get("environ") or {}
    own_name = snapshot.facts(name, "host-name")
    asked = own_name if own_name and own_name["failed"] != "not-asked" else None
    route = snapshot.facts(name, "default-route")
    nccl = interfaces.bootstrap(addresses, values, release or NEWEST_READ)
    return View(
        name,
        addresses,
        interfaces.natures(snapshot.facts(name, "interfaces")),
        settings is not None,
        nccl,
        nccl if release else interfaces.bootstrap(addresses, values, JUST_BEFORE),
        addressing.gloo(addresses, others, asked, own_name["name"] if own_name else None),
        addressing.vllm(addresses, others, route["sources"] if route else None),
        route["routes"] if route else None,
    )


def _shared(views: List[View]) -> Set[str]:
    """Networks in which every node has a good address."""
    networks = [{address.network for address in view.good} for view in views]
    return set.intersection(*networks) if networks else set()


def _advice(view: View, shared: Set[str], variable: str = "NCCL_SOCKET_IFNAME", sign: str = "=") -> str:
    """What to type; the interface by name where only one can be meant."""
    good = [address for address in view.good if address.network in shared] or view.good
    if len(good) == 1:
        return "export %s=%s%s" % (variable, sign, good[0].name)
    if good:
        return "export %s=%s<the interface towards the peers: %s>" % (
            variable,
            sign,
            ", ".join("%s (%s)" % (a.name, a.address) for a in good),
        )
    return (
        "bring up an interface with an address that the peers reach (ip -br addr), and give its name to %s" % variable
    )


def _own_address(view: View, shared: Set[str]) -> str:
    """What to type; by name where only one can be meant."""
    good = [address for address in view.good if address.network in shared] or view.good
    if len(good) == 1:
        return good[0].address
    told = "one of " + ", ".join("%s (%s)" % (a.address, a.name) for a in good) if good else "this node's address"
    return "<%s, on the peers' network>" % told


def _observed(view: View) -> Dict[str, Any]:
    def told(choice: Advertised) -> Dict[str, Any]:
        return {"interface": choice.interface, "address": choice.address, "rule": choice.rule, "error": choice.error}

    chosen = view.chosen
    names = {chosen.name if chosen else None, view.gloo.interface, view.vllm.interface}
    return {
        "nccl": {
            "interface": chosen.name if chosen else None,
            "address": chosen.address if chosen else None,
            "rule": view.nccl.rule,
            "error": view.nccl.error,
        },
        "gloo": told(view.gloo),
        "vllm": told(view.vllm),
        "agree": len(names) == 1,
    }


def _judge_nccl(view: View, several: bool, shared: Set[str]) -> Iterator[Finding]:
    chosen, seen = view.chosen, _observed(view)
    setting = "NCCL_COMM_ID" if "NCCL_COMM_ID" in view.nccl.rule else "NCCL_SOCKET_IFNAME"
    source = "addresses in getifaddrs order; " + view.nccl.rule
    expected = (
        "one of " + ", ".join(address.name for address in view.good)
        if view.good
        else "an interface that the peers reach"
    )
    said: Dict[str, Any] = {
        "source": source,
        "observed": seen,
        "expected": expected,
        "cause": "socket-ifname-wrong",
        "setting": setting,
    }
    bad = fail if several and view.environ_read else warn
    takes = (
        "NCCL will take" if view.environ_read else "NCCL would take, without variables (the environment was not read),"
    )
    if view.nccl.error is not None:
        yield (fail if view.environ_read else warn)(
            'NCCL will find no interface and end with "%s" (%s; there are %s)'
            % (
                view.nccl.error,
                view.nccl.rule,
                ", ".join(dict.fromkeys(address.name for address in view.addresses)) or "none with an address",
            ),
            view.name,
            remedy=_advice(view, shared),
            **said,
        )
        return
    if chosen is None:
        yield unknown(
            "NCCL's interface cannot be worked out here: %s" % view.nccl.rule,
            view.name,
            source=source,
            remedy="give NCCL_COMM_ID as address:port, or unset it",
        )
        return
    what = view.nature(chosen.name)
    if not chosen.running:
        yield bad(
            "%s %s (%s), which is not up" % (takes, chosen.name, chosen.address),
            view.name,
            remedy="%s; or: ip link set %s up" % (_advice(view, shared), chosen.name),
            **said,
        )
    elif useless(chosen.address) and (several or view.good):
        yield bad(
            "%s %s, whose address %s is %s" % (takes, chosen.name, chosen.address, useless(chosen.address)),
            view.name,
            remedy=_advice(view, shared),
            **said,
        )
    elif what is not None and (several or view.good):
        tunnel = any(word in what for word in TUNNELS)
        yield (warn if tunnel else bad)(
            "%s %s (%s), %s that %s"
            % (takes, chosen.name, chosen.address, what, "is slow" if tunnel else "leads to no other machine"),
            view.name,
            remedy=_advice(view, shared),
            **said,
        )
    before = view.before.chosen[0] if view.before.chosen else None
    if before is None or before.name != chosen.name:
        yield warn(
            "which interface NCCL takes depends on its release: %s before %s, %s from then on"
            % (before.name if before else "none", dotted(interfaces.RUNNING_SINCE), chosen.name),
            view.name,
            remedy="name the one that the peers reach: export NCCL_SOCKET_IFNAME==%s"
            % (" or NCCL_SOCKET_IFNAME==".join(one.name for one in (before, chosen) if one)),
            **said,
        )


def _judge_other(who: str, view: View, told: Advertised, several: bool, shared: Set[str]) -> Iterator[Finding]:
    """gloo and vLLM. What the probes host-name, default-route and node-address say is not said again."""
    variable = "GLOO_SOCKET_IFNAME" if who == "gloo" else "VLLM_HOST_IP"
    cause = "socket-ifname-wrong" if who == "gloo" else "node-ip-wrong-interface"
    advice = (
        _advice(view, shared, variable, "") if who == "gloo" else "export VLLM_HOST_IP=%s" % _own_address(view, shared)
    )
    if told.error is not None and told.address is None:
        yield fail(
            '%s will end with "%s"' % (who, told.error),
            view.name,
            source=told.rule,
            observed=_observed(view),
            expected="the exact name of an interface with an address",
            cause=cause,
            remedy=advice,
            setting=variable,
        )
        return
    what = view.nature(told.interface)
    if told.address is None or not (several or view.good):
        return
    if several and useless(told.address):
        yield fail(
            "%s will advertise %s, %s (%s)" % (who, told.address, useless_words(told.address), told.rule),
            view.name,
            source=told.rule,
            observed=_observed(view),
            expected="an address that the peers reach",
            cause="hostname-resolves-to-loopback" if who == "gloo" else cause,
            remedy=advice,
            setting=variable,
        )
    elif what is not None:
        tunnel = any(word in what for word in TUNNELS)
        yield (fail if several and not tunnel else warn)(
            "%s will advertise %s of %s, %s" % (who, told.address, told.interface, what),
            view.name,
            source=told.rule,
            observed=_observed(view),
            expected="an address that the peers reach",
            cause=cause,
            remedy=advice,
            setting=variable,
        )


def _settled(view: View) -> Finding:
    chosen, seen = view.chosen, _observed(view)
    if not view.environ_read:
        return unknown(
            "the environment was not read; without NCCL variables NCCL would take %s"
            % (chosen.name if chosen else "none"),
            view.name,
            source=view.nccl.rule,
            remedy="name a process of the engine with --pid, or the variables it will get with --env-file",
        )
    parts = ["NCCL takes %s (%s)" % (chosen.name, chosen.address) if chosen else "NCCL takes none"]
    for who, told in (("gloo", view.gloo), ("vLLM", view.vllm)):
        if told.address is None:
            parts.append("what %s takes is not known" % who)
        else:
            parts.append(
                "%s %s"
                % (
                    who,
                    "the same"
                    if chosen and told.interface == chosen.name
                    else "%s (%s)" % (told.interface, told.address),
                )
            )
    return ok("; ".join(parts), view.name, source=view.nccl.rule, observed=seen)


def _between(views: List[View], shared: Set[str]) -> Iterator[Finding]:
    """Whether the nodes' choices can reach each other."""
    by_address: Dict[str, List[View]] = {}
    for view in views:
        if view.chosen is not None and not useless(view.chosen.address):
            by_address.setdefault(view.chosen.address, []).append(view)
    for address, holders in by_address.items():
        if len(holders) > 1:
            names = [view.name for view in holders]
            yield fail(
                "NCCL will take the same address %s on %s" % (address, fold(names)),
                holders[0].name,
                source="addresses of each node",
                observed={address: names},
                expected="an address of its own for each node",
                cause="socket-ifname-wrong",
                remedy=_advice(holders[0], shared),
            )
    ways = Ways(address for address in by_address)
    for view in views:
        yield from _unreachable(view, ways, by_address, shared)
    networks: Dict[str, List[str]] = {}
    for view in views:
        if view.chosen is not None:
            networks.setdefault("%s %s" % (view.chosen.name, view.chosen.network), []).append(view.name)
    if len({told.partition(" ")[2] for told in networks}) > 1 and shared:
        odd = [view for view in views if view.chosen is not None and view.chosen.network not in shared]
        yield warn(
            "the nodes choose different networks for NCCL: %s; all of them are in %s"
            % (parity.shared(networks), ", ".join(sorted(shared))),
            (odd or views)[0].name,
            source="addresses of each node",
            observed=networks,
            expected="one network on all nodes",
            cause="socket-ifname-wrong",
            remedy=_advice((odd or views)[0], shared),
        )


def _unreachable(view: View, ways: Ways, by_address: Dict[str, List[View]], shared: Set[str]) -> Iterator[Finding]:
    """Nodes whose chosen address this one has no way to; the one with the odd network is the one to change."""
    blind = [
        other
        for address in ways.missing(view.addresses, view.routes)
        for other in by_address[address]
        if other is not view
    ]
    if blind:
        other = blind[0]
        first = other.chosen
        yield fail(
            "%s has no route to %s, the address that NCCL will take on %s%s"
            % (
                view.name,
                first.address if first else "",
                other.name,
                " (and %d more)" % (len(blind) - 1) if len(blind) > 1 else "",
            ),
            view.name,
            source="routes of %s" % view.name,
            observed={one.name: one.chosen.address for one in blind[:MAX_NAMED] if one.chosen},
            expected="one network, or routes between them",
            cause="socket-ifname-wrong",
            remedy="on %s: %s; or add the route: ip route add %s via <gateway>"
            % (other.name, _advice(other, shared), first.network if first else "<network>"),
            peer=other.name,
        )


PROBE = Probe(
    "bootstrap-interface",
    "NCCL, gloo and vLLM take interfaces that reach the other nodes",
    judge,
    needs=("interfaces", "default-route", "host-name", "nccl-environment", "nccl-conf-files", "framework-environment"),
)
