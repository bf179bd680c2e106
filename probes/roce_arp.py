"""Several RoCE cards in one network each answer for their own address only.

Linux by default answers an ARP request for any of its addresses on any of its interfaces. With two cards in one network the peer then
learns the hardware address of the wrong card: its packets arrive where no such queue pair is, and NCCL ends with `retry exceeded`
(status 12), now on this pair, now on that. With strict reverse-path filtering only the card with the first route answers at all, and
the others end in `ibv_modify_qp failed … Connection timed out`.

Source: kernel Documentation/networking/ip-sysctl.rst (arp_ignore, rp_filter: the larger of conf/all and conf/<if> holds), arp_process().
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl.sysfs import names
from ncdiag.probes.roce_network import network_of, taken

CONF = "/proc/sys/net/ipv4/conf"
MAX_INTERFACES = 256


class Settings(TypedDict):
    """None: not readable."""

    arp_ignore: Optional[int]  # 0: answers for any local address; from 1 on only for those of the interface
    rp_filter: Optional[int]  # 0 off, 1 strict, 2 loose


def collect(host: Host) -> Dict[str, Settings]:
    """Interface, `all` among them -> its settings."""
    found = names(host, CONF)
    chosen = [name for name in found if name == "all"] + [
        name for name in found if name not in ("all", "default", "lo")
    ]
    return {
        name: {
            "arp_ignore": host.number(f"{CONF}/{name}/arp_ignore"),
            "rp_filter": host.number(f"{CONF}/{name}/rp_filter"),
        }
        for name in chosen[:MAX_INTERFACES]
    }


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        if snapshot.facts(node, "roce-gid") is None:
            continue  # said already
        crowded = _crowded(snapshot, node)
        if not crowded:
            yield skip("no two RoCE ports that NCCL takes are in one network", node, source=CONF)
        for network, links in crowded.items():
            yield from _network(node, network, links, facts)


def _crowded(snapshot: Snapshot, node: str) -> Dict[str, List[str]]:
    """IPv4 network -> the interfaces of the RoCE ports in it, where there are several."""
    found: Dict[str, Dict[str, None]] = {}
    for choice in taken(snapshot, node).values():
        network = network_of(snapshot, node, choice)
        if network and choice.gid and choice.gid.ipv4 and choice.gid.netdev:
            found.setdefault(network, {})[choice.gid.netdev] = None
    return {network: list(links) for network, links in found.items() if len(links) > 1}


def _network(node: str, network: str, links: List[str], facts: Dict[str, Settings]) -> Iterator[Finding]:
    ignore = {name: _holds(facts, name, "arp_ignore") for name in links}
    strict = [name for name in links if _holds(facts, name, "rp_filter") == 1]
    loud = [name for name in links if ignore[name] == 0]
    shown = f"{', '.join(links[:8])} are all in {network}"
    if loud:
        yield warn(
            f"{shown}, and {', '.join(loud[:8])} answers ARP for the others' addresses (arp_ignore 0): peers may send to the wrong card",
            node,
            source=f"{CONF}/*/arp_ignore",
            observed=ignore,
            expected="at least 1",
            cause="ib-path-unreachable",
            remedy="sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 on all nodes, or a network for each card",
        )
    elif strict:
        yield warn(
            f"{shown}, with strict reverse-path filtering (rp_filter 1) on {', '.join(strict[:8])}: only the one with the first route answers",
            node,
            source=f"{CONF}/*/rp_filter",
            observed=strict,
            expected="0 or 2",
            cause="ib-path-unreachable",
            remedy="sysctl -w net.ipv4.conf.all.rp_filter=2 (the larger of all and the interface holds), or a routing table for each card",
        )
    elif None in ignore.values():
        yield unknown(
            f"{shown}; whether each answers ARP for itself only was not read", node, source=f"{CONF}/*/arp_ignore"
        )
    else:
        yield ok(f"{shown}; each answers ARP for its own address only", node, source=f"{CONF}/*/arp_ignore")


def _holds(facts: Dict[str, Settings], name: str, key: str) -> Optional[int]:
    """The larger of the interface's value and that of all; of one alone only where it is no 0."""
    both: List[Optional[int]] = [facts[one][key] for one in ("all", name) if one in facts]  # type: ignore[literal-required]
    told = [value for value in both if value is not None]
    return max(told) if len(told) == 2 or (told and max(told) > 0) else None


PROBE = Probe(
    "roce-arp",
    "RoCE cards in one network answer for their own address only",
    judge,
    collect,
    needs=("roce-gid", "rdma-devices", "interfaces", "nccl-environment", "nccl-conf-files"),
)
