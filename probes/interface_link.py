"""The interfaces that can carry the ranks' traffic are up, equally fast, of one MTU, and lose nothing.

One slow or lossy link holds up every collective. Counters since boot tell little alone (they may be old), so they are read twice
and what grew in between counts first. Nodes are compared with each other before they are compared with constants.

Source: rtnetlink struct rtnl_link_stats64, read twice; /sys/class/net/<if>/{speed,mtu,carrier_changes,bonding}.
"""

from __future__ import annotations

import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, TypedDict

from ncdiag import parity, rtnetlink
from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import interfaces
from ncdiag.nccl.namespace import must_be_ours
from ncdiag.nodeset import counted

WINDOW_S = 0.5
"""Between the two readings."""

ERRORS = (
    "rx_errors",
    "tx_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "tx_carrier_errors",
    "collisions",
)
"""Damaged frames: cable, optics, port. Each may be counted in rx_errors as well, so the largest counts and not the sum."""
DROPS = ("rx_dropped", "tx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_fifo_errors", "rx_over_errors")
"""Frames that arrived and were thrown away: buffers, CPU. rx_dropped also counts protocols that nobody listens to."""

MAX_ERROR_RATIO = 1e-6
"""Damaged of all frames since boot. IEEE 802.3 allows 1e-12 a bit, about 1e-8 a frame of 1500 bytes; a hundred times that is a fault."""
MAX_DROP_RATIO = 1e-3
"""Dropped of all frames. A judgement: TCP's throughput falls visibly above 0.1 % loss; unknown protocols stay below it."""
MIN_COUNT = 100
"""Fewer events than this since boot are not worth a word."""
MAX_CARRIER_CHANGES = 20
"""Going up and down since the link was made; a start and a switch's restart take a handful."""
FAULT = "ib-link-or-hca-fault"


class Facts(TypedDict):
    window_s: Optional[float]
    """Time between the readings; None when counters could not be read twice."""
    grown: Dict[str, Dict[str, int]]
    """Interface -> counter -> by how much it grew; only counters that grew."""


def collect(host: Host) -> Facts:
    must_be_ours(host)
    try:
        grown = host.ask("growth of the link counters", _growth)
    except HostError:
        return {"window_s": None, "grown": {}}
    return {"window_s": WINDOW_S, "grown": grown}


def _growth() -> Dict[str, Dict[str, int]]:
    before = {link["name"]: link["counters"] for link in rtnetlink.links()}
    time.sleep(WINDOW_S)
    found = {}
    for link in rtnetlink.links():
        old = before.get(link["name"], {})
        grew = {name: value - old[name] for name, value in link["counters"].items() if value > old.get(name, value)}
        if grew:
            found[link["name"]] = grew
    return found


class Link(NamedTuple):
    """One interface of one node with its network."""

    node: str
    facts: Dict[str, Any]
    networks: List[str]


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    links: List[Link] = []
    for node, told in snapshot.each("interfaces"):
        own = _carriers(node, told)
        links.extend(own)
        facts: Optional[Facts] = snapshot.facts(node, PROBE.id)
        found = [
            finding for link in own for finding in (*_state(link), *_losses(link, facts), *_against_parent(link, told))
        ]
        yield from found
        if not own:
            yield skip("no interface here leads to other machines", node, source=told["source"])
        elif not found and not any(link.facts["counters"] for link in own):
            yield unknown(
                "the counters of %s could not be read" % _names(own),
                node,
                source=told["source"],
                remedy="run ncdiag on the node itself",
            )
        elif not found:
            yield ok(
                "%s: up, no errors" % ", ".join(_shown(link.facts) for link in own),
                node,
                source=told["source"],
                observed={
                    link.facts["name"]: {"mtu": link.facts["mtu"], "speed_mbits": link.facts["speed_mbits"]}
                    for link in own
                },
            )
    yield from _between(links)


def _carriers(node: str, told: Dict[str, Any]) -> List[Link]:
    """Interfaces that can lead to other machines: with an address or a master, no virtual one; down ones too, if they are meant to be up."""
    natures = interfaces.natures(told)
    networks: Dict[str, List[str]] = {}
    for entry in interfaces.local_addresses(told):
        networks.setdefault(entry.name.partition(":")[0], []).append(entry.network)
    return [
        Link(node, link, networks.get(link["name"], []))
        for link in told["links"]
        if "LOOPBACK" not in link["flags"]
        and natures[link["name"]] is None
        and (link["name"] in networks or (link["master"] and link["driver"]))
    ]


def _names(links: List[Link]) -> str:
    return ", ".join(link.facts["name"] for link in links)


def _shown(link: Dict[str, Any]) -> str:
    speed = " %g Gb/s" % (link["speed_mbits"] / 1000) if link["speed_mbits"] else ""
    return "%s%s MTU %s" % (link["name"], speed, link["mtu"])


def _state(link: Link) -> Iterator[Finding]:
    facts = link.facts
    name, up = facts["name"], "UP" in facts["flags"]
    place = "/sys/class/net/%s/operstate" % name
    if not up or "RUNNING" not in facts["flags"]:
        what = "has no carrier (cable, optics, switch port)" if up else "is switched off"
        member = " of %s, which is left with less bandwidth" % facts["master"] if facts["master"] else ""
        yield warn(
            "%s%s %s" % (name, member, what),
            link.node,
            source=place,
            observed=facts["operstate"],
            expected="UP",
            cause=FAULT,
            device=name,
            remedy="see the cable and the switch port of %s: ip -s link show %s" % (name, name)
            if up
            else "ip link set %s up" % name,
        )
    changes = facts["carrier_changes"]
    if changes is not None and changes > MAX_CARRIER_CHANGES and facts["driver"]:
        yield warn(
            "%s went up or down %s since it was made" % (name, counted(changes, "time")),
            link.node,
            source="/sys/class/net/%s/carrier_changes" % name,
            observed=changes,
            unit="times",
            expected="at most %d" % MAX_CARRIER_CHANGES,
            cause=FAULT,
            device=name,
            remedy="change cable or optics of %s, and see the log: dmesg | grep %s" % (name, name),
        )


def _losses(link: Link, facts: Optional[Facts]) -> Iterator[Finding]:
    name, total = link.facts["name"], link.facts["counters"]
    grown = (facts or {"grown": {}})["grown"].get(name, {})
    place = "rtnl_link_stats64 of %s" % name
    for what, counters, limit in (("damaged", ERRORS, MAX_ERROR_RATIO), ("dropped", DROPS, MAX_DROP_RATIO)):
        new = {counter: grown[counter] for counter in counters if counter in grown}
        frames = max(1, grown.get("rx_packets", 0) + grown.get("tx_packets", 0))
        old = {counter: total[counter] for counter in counters if total.get(counter)}
        packets = max(1, total.get("rx_packets", 0) + total.get("tx_packets", 0))
        remedy = (
            "change cable or optics of %s: ethtool -S %s | grep -iE 'err|crc'"
            if what == "damaged"
            else "enlarge the receive ring, and see which buffer is short: ethtool -g %s; ethtool -S %s | grep -iE 'drop|discard|miss'"
        ) % ((name, name))
        if new and (what == "damaged" or max(new.values()) / frames > limit):
            yield warn(
                "%s: frames are being %s: %s within %g s" % (name, what, _counts(new), WINDOW_S),
                link.node,
                source=place,
                observed=new,
                expected="none" if what == "damaged" else "under %g of all frames" % limit,
                cause=FAULT,
                remedy=remedy,
                device=name,
            )
        elif old and max(old.values()) >= MIN_COUNT and max(old.values()) / packets > limit:
            yield warn(
                "%s: %s of %d frames were %s since boot" % (name, _counts(old), packets, what),
                link.node,
                source=place,
                observed=old,
                expected="under %g of all frames" % limit,
                cause=FAULT,
                remedy=remedy + "; run ncdiag again under load to see whether it still grows",
                device=name,
            )


def _counts(counters: Dict[str, int]) -> str:
    return ", ".join("%s %d" % item for item in counters.items())


def _against_parent(link: Link, told: Dict[str, Any]) -> Iterator[Finding]:
    """A VLAN or macvlan cannot pass larger frames than what it stands on, nor a bond than its members."""
    below = [
        other
        for other in told["links"]
        if other["name"] == link.facts["lower"]
        or (other["master"] == link.facts["name"] and link.facts["bond_mode"] is not None)
    ]
    for other in below:
        if other["mtu"] and link.facts["mtu"] and link.facts["kind"] != "veth" and link.facts["mtu"] > other["mtu"]:
            yield warn(
                "%s has MTU %d, %s below it only %d"
                % (link.facts["name"], link.facts["mtu"], other["name"], other["mtu"]),
                link.node,
                source="/sys/class/net/%s/mtu" % other["name"],
                observed=other["mtu"],
                unit="bytes",
                expected=link.facts["mtu"],
                cause="mtu-mismatch",
                remedy="ip link set %s mtu %d" % (other["name"], link.facts["mtu"]),
                device=link.facts["name"],
            )


def _between(links: List[Link]) -> Iterator[Finding]:
    """Interfaces of one network on several nodes: one MTU, one speed."""
    networks: Dict[str, List[Link]] = {}
    for link in links:
        for network in link.networks:
            if not network.startswith("fe80:") and "RUNNING" in link.facts["flags"]:
                networks.setdefault(network, []).append(link)
    told = set()
    for network, members in networks.items():
        for key, unit, cause, remedy in (
            ("mtu", "bytes", "mtu-mismatch", "ip link set %s mtu %s"),
            ("speed_mbits", "Mb/s", FAULT, "see cable, optics and switch port of %s; the others run at %s Mb/s"),
        ):
            values: Dict[Any, List[Link]] = {}
            for link in members:
                if link.facts[key] is not None:
                    values.setdefault(link.facts[key], []).append(link)
            if len(values) < 2 or len({link.node for link in members}) < 2:
                continue
            usual = max(values, key=lambda value: (len(values[value]), value))
            odd = [link for value, some in values.items() if value != usual for link in some]
            mark = (key, tuple(sorted((link.node, link.facts["name"]) for link in odd)))
            if mark in told:
                continue
            told.add(mark)
            by_name: Dict[str, List[str]] = {}
            for link in odd:
                by_name.setdefault(link.facts["name"], []).append(link.node)
            yield warn(
                "%s of %s in %s is %s %s, of the others %s"
                % (
                    "MTU" if key == "mtu" else "speed",
                    parity.shared(by_name),
                    network,
                    " and ".join(sorted({str(link.facts[key]) for link in odd})),
                    unit,
                    usual,
                ),
                odd[0].node,
                source="/sys/class/net/%s/%s" % (odd[0].facts["name"], key.partition("_")[0]),
                observed={"%s %s" % (link.node, link.facts["name"]): link.facts[key] for link in members},
                expected=usual,
                unit="bytes" if key == "mtu" else "Mb/s",
                cause=cause,
                remedy="on %s: " % odd[0].node + remedy % (odd[0].facts["name"], usual),
                device=odd[0].facts["name"],
            )


PROBE = Probe(
    "interface-link",
    "interfaces are up, equally fast, of one MTU and lose nothing",
    judge,
    collect,
    needs=("interfaces",),
)
