"""No packet filter of this node drops what NCCL, gloo, vLLM and Ray need.

NCCL's bootstrap, its sockets and gloo listen on ports that the kernel picks; Ray adds its own; RoCE v2 travels as UDP to port 4791.
A filter that lets ssh through and drops the rest looks like a peer that never came. Rules that cannot be read are unknown, never fine.

Source: nfnetlink (the list of tables), `nft list ruleset`, `iptables-legacy-save`, /proc/net/ip_tables_names.
"""

from __future__ import annotations

import ipaddress
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, TypedDict

from ncdiag import rtnetlink
from ncdiag.host import Absent, Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn
from ncdiag.nccl import filter_rules, interfaces, node, packet_filter
from ncdiag.nccl.namespace import must_be_ours
from ncdiag.nccl.packet_filter import Flow
from ncdiag.nccl.reach import useless

ROCE_PORT = 4791
"""UDP destination port of RoCE v2 (IANA; InfiniBand annex A17)."""
RAY_PORTS = (6379, 10002, 19999)
"""Ray's head (GCS), and the first and last of the default ports of its workers (docs.ray.io, configuring Ray, ports)."""
DEFAULT_RANGE = (32768, 60999)
"""ip_local_port_range of the kernel, where the node's own is not known."""
LEGACY = (
    ("/proc/net/ip_tables_names", "iptables-legacy-save", "ip"),
    ("/proc/net/ip6_tables_names", "ip6tables-legacy-save", "ip6"),
)


class Facts(TypedDict):
    tables: List[Dict[str, Any]]
    """Chains that a packet of this machine passes (see ncdiag.nccl.filter_rules)."""
    unread: List[str]
    """What could not be read, with the reason. Not empty: `tables` may lack rules."""
    source: str


def collect(host: Host) -> Facts:
    must_be_ours(host)
    facts: Facts = {"tables": [], "unread": [], "source": "nfnetlink"}
    _nftables(host, facts)
    if not host.exists("/proc/net/dev") and not host.recorded:
        facts["unread"].append("/proc/net is not there")
    for names, command, family in LEGACY:
        try:
            present = host.value(names)
        except HostError as error:
            facts["unread"].append(str(error))
            continue
        if present is None and not host.sought(names):
            facts["unread"].append("%s: it was not recorded" % names)
        elif present:
            try:
                facts["tables"] += filter_rules.parse_iptables(host.run([command]).out, family)
                facts["source"] += ", " + command
            except HostError as error:
                facts["unread"].append(str(error))
    if (
        sum(len(chain["rules"]) for table in facts["tables"] for chain in table["chains"].values())
        > filter_rules.MAX_RULES
    ):
        facts["tables"] = []
        facts["unread"].append("more than %d rules" % filter_rules.MAX_RULES)
    return facts


def _nftables(host: Host, facts: Facts) -> None:
    """The rules by `nft`, which is only run where there are any."""
    try:
        if not host.ask("nftables tables", rtnetlink.filter_tables):
            return
    except Absent:
        pass
    except HostError as error:
        facts["unread"].append(
            "nftables: %s; only root may read the rules" % error.reason if error.errno == 1 else str(error)
        )
        return
    try:
        output = host.run(["nft", "list", "ruleset"])
        if output.rc:
            facts["unread"].append(
                "nft list ruleset: %s" % (output.err.strip() or "exit status %d" % output.rc).splitlines()[0]
            )
        facts["tables"] += filter_rules.parse_nft(output.out)
        facts["source"] = "nft list ruleset"
    except HostError as error:
        facts["unread"].append(str(error))


class Need(NamedTuple):
    """One kind of traffic that must pass."""

    what: str
    flow: Flow
    must: bool
    """False: only where Ray runs."""


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    several = node.several(snapshot)
    for name, facts in snapshot.each(PROBE.id):
        found = list(_judge_node(snapshot, name, facts, several))
        yield from found
        if facts["unread"]:
            yield unknown(
                "firewall rules could not be read: %s" % "; ".join(facts["unread"]),
                name,
                source=facts["source"],
                remedy="run ncdiag as root on the node, with nft installed",
            )
        elif not facts["tables"]:
            yield ok("no packet filter has a rule", name, source=facts["source"], observed=[])
        elif not found:
            yield ok(
                "the packet filter lets NCCL's, Ray's and the plan's ports through",
                name,
                source=facts["source"],
                observed=["%s %s" % (table["family"], table["name"]) for table in facts["tables"]],
            )


def _judge_node(snapshot: Snapshot, name: str, facts: Facts, several: bool) -> Iterator[Finding]:
    blocked: Dict[str, List[Need]] = {}
    open_both: Dict[str, List[Need]] = {}
    for need in _needs(snapshot, name) if facts["tables"] else ():
        verdict = packet_filter.walk(facts["tables"], need.flow)
        if "drop" in verdict.ends:
            (blocked if verdict.ends == ("drop",) else open_both).setdefault(
                "; ".join(verdict.rules) or "its rules", []
            ).append(need)
    for rules, needs in blocked.items():
        must = any(need.must for need in needs)
        yield (fail if several and must else warn)(
            "the packet filter drops %s%s: %s"
            % (_listed(needs), "" if several else " (which matters between nodes)", rules),
            name,
            source=facts["source"],
            observed=rules,
            expected="accepted from the other nodes",
            cause="bootstrap-blocked-firewall",
            remedy=_remedy(facts, needs[0].flow),
        )
    for rules, needs in open_both.items():
        yield unknown(
            "whether the packet filter drops %s depends on conditions that are not understood here: %s"
            % (_listed(needs), rules),
            name,
            source=facts["source"],
            cause="bootstrap-blocked-firewall",
            remedy=_remedy(facts, needs[0].flow),
        )


def _listed(needs: List[Need]) -> str:
    return ", ".join(dict.fromkeys(need.what for need in needs))


def _remedy(facts: Facts, flow: Flow) -> str:
    peers = flow.source if flow.direction == "in" else flow.destination
    network = str(interfaces.Address("", peers, 64 if ":" in peers else 24, True).network)
    if any("firewalld" in table["name"] for table in facts["tables"]):
        return (
            "firewall-cmd --permanent --zone=trusted --add-source=<the nodes' network, e.g. %s>; firewall-cmd --reload"
            % network
        )
    if any(chain.startswith("ufw") for table in facts["tables"] for chain in table["chains"]):
        return "ufw allow from <the nodes' network, e.g. %s>" % network
    if "iptables" in facts["source"] or any(
        table["name"] == "filter" and "INPUT" in table["chains"] for table in facts["tables"]
    ):
        return "iptables -I INPUT -s <the nodes' network, e.g. %s> -j ACCEPT" % network
    return "nft insert rule <family> <table> <chain> %s saddr <the nodes' network, e.g. %s> accept" % (
        flow.family,
        network,
    )


def _needs(snapshot: Snapshot, name: str) -> Iterator[Need]:
    """The traffic to try: from a peer to the address that NCCL takes, and back."""
    values = {key: setting.value for key, setting in (node.settings(snapshot, name) or {}).items()}
    chosen = interfaces.bootstrap(
        node.addresses(snapshot, name), values, node.release(snapshot, name) or (2, 30, 7)
    ).chosen
    if not chosen or useless(chosen[0].address) == "loopback":
        return
    mine, peer = chosen[0], _peer(snapshot, name, chosen[0])
    low, high = _range(snapshot.facts(name, "ephemeral-ports"))
    wanted = [("TCP port %d of the plan" % port, "tcp", port, True) for port in snapshot.plan.ports]
    wanted += [
        ("TCP to ephemeral ports (NCCL, gloo, vLLM, Ray)", "tcp", port, True) for port in (low, (low + high) // 2, high)
    ]
    wanted += [("TCP ports 6379 and 10002 to 19999 (Ray)", "tcp", port, False) for port in RAY_PORTS]
    if _has_roce(snapshot, name):
        wanted.append(("UDP port 4791 (RoCE v2)", "udp", ROCE_PORT, True))
    for what, proto, port, must in wanted:
        yield Need(what + " coming in", Flow("in", proto, port, mine.name, peer, mine.address), must)
        yield Need(what + " going out", Flow("out", proto, port, mine.name, mine.address, peer), must)


def _range(facts: Optional[Dict[str, Any]]) -> Any:
    return (facts["low"], facts["high"]) if facts and facts["low"] and facts["high"] else DEFAULT_RANGE


def _has_roce(snapshot: Snapshot, name: str) -> bool:
    rdma = snapshot.facts(name, "rdma-devices") or {"devices": []}
    return any(port["link_layer"] == "Ethernet" for device in rdma["devices"] for port in device["ports"])


def _peer(snapshot: Snapshot, name: str, mine: interfaces.Address) -> str:
    """Another node's address in the same network; where there is none, a neighbour's that might be."""
    for other in snapshot.nodes:
        for address in node.addresses(snapshot, other) if other != name else ():
            if mine.holds(address.address) and address.address != mine.address:
                return address.address
    network = ipaddress.ip_network(mine.network)
    near = next((str(host) for host in network.hosts() if str(host) != mine.address), None)
    return near or mine.address


PROBE = Probe(
    "firewall",
    "no packet filter drops what NCCL, gloo, vLLM and Ray need",
    judge,
    collect,
    needs=("interfaces", "nccl-environment", "nccl-conf-files", "ephemeral-ports", "rdma-devices"),
)
