"""No two nodes hold the same IP or MAC address.

A cloned image, a copied netplan file or a hand-made address puts two machines on one address. Connections then reach now the one
and now the other: a rank talks to the wrong node, the group hangs or ends with a reset, and each node alone looks healthy. Virtual
interfaces (docker0, bridges) have the same addresses everywhere and do not count.

Source: addresses and links of each node (rtnetlink, `ip -j addr`), compared over the nodes.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, warn
from ncdiag.nccl import interfaces
from ncdiag.nccl.reach import useless
from ncdiag.nodeset import fold

Holders = Dict[str, List[Tuple[str, str]]]
"""Address -> `(node, interface)` of those that hold it."""


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = dict(snapshot.each("interfaces"))
    if len(nodes) < 2:
        yield skip("fewer than two nodes told their addresses: nothing to compare", source="addresses of each node")
        return
    ips: Holders = {}
    macs: Holders = {}
    for node, told in nodes.items():
        _add(ips, macs, node, told)
    shared = {address: holders for address, holders in ips.items() if _nodes(holders)}
    for address, holders in shared.items():
        yield fail("%s is the address of %s" % (address, _shown(holders)), holders[-1][0], source="addresses of each node", device=holders[-1][1],
                   observed={address: ["%s %s" % holder for holder in holders]}, expected="an address of its own for each node",
                   cause="bootstrap-peer-unreachable",
                   remedy="give all but one of them another address (ip addr, netplan, the address server); find who answers: arping -D %s" % address)  # fmt: skip
    for mac, holders in macs.items():
        if _nodes(holders):
            yield warn("the hardware address %s is that of %s" % (_mac(mac), _shown(holders)), holders[-1][0], source="links of each node",
                       device=holders[-1][1], observed={_mac(mac): ["%s %s" % holder for holder in holders]},
                       expected="a hardware address of its own for each interface of a network", cause="bootstrap-peer-unreachable",
                       remedy="if they are in one network, give all but one another: ip link set %s address <another>" % holders[-1][1])  # fmt: skip
    if not shared:
        yield ok(
            "%d addresses of %d nodes, none of them twice" % (len(ips), len(nodes)), source="addresses of each node"
        )


def _add(ips: Holders, macs: Holders, node: str, told: Dict[str, Any]) -> None:
    natures = interfaces.natures(told)
    for entry in interfaces.local_addresses(told):
        name = entry.name.partition(":")[0]
        if natures.get(name) is None and not useless(entry.address):
            ips.setdefault(entry.address, []).append((node, name))
    for link in told["links"]:
        if (
            natures.get(link["name"]) is None
            and link["driver"]
            and not link["master"]
            and "RUNNING" in link["flags"]
            and int(link["mac"] or "0", 16)
        ):
            macs.setdefault(link["mac"], []).append((node, link["name"]))


def _nodes(holders: List[Tuple[str, str]]) -> bool:
    """Whether more than one node is among them."""
    return len({node for node, _name in holders}) > 1


def _shown(holders: List[Tuple[str, str]]) -> str:
    by_name: Dict[str, List[str]] = {}
    for node, name in holders:
        by_name.setdefault(name, []).append(node)
    return " and of ".join("%s on %s" % (name, fold(nodes)) for name, nodes in by_name.items())


def _mac(text: str) -> str:
    return ":".join(text[at : at + 2] for at in range(0, len(text), 2))


PROBE = Probe("address-unique", "No two nodes hold the same address", judge, needs=("interfaces",))
