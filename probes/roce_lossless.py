"""RoCE traffic is in a class that the network protects, alike on all ports.

RoCE slows down tenfold when packets are lost, so cards and switches either pause one priority (PFC) or mark congestion (ECN).
NCCL sends with traffic class 0 unless NCCL_IB_TC says otherwise, so a fabric set up for DSCP 26 protects a class that carries nothing.
The switch's side cannot be seen from here, only its effects.

Source: DCB netlink (include/uapi/linux/dcbnl.h): PFC, ETS and the DSCP table where the driver tells; ethtool statistics of mlx5 (kernel Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst: pause counters
exist for the priorities that PFC is on for); MLNX_OFED files /sys/class/net/<if>/{qos,ecn}, /sys/class/infiniband/<dev>/tc.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import dcb, ethtool, machine
from ncdiag.nccl.settings import integer
from ncdiag.nccl.sysfs import names, word
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted

KEPT = re.compile(
    r"(?:rx|tx)_prio\d_(?:pause|discards|cong_discard|buf_discard)$|(?:rx|tx)_discards_phy$|tx_pause_storm_\w+_events$|"
    r"(?:rx|tx)_global_pause$|outbound_pci_stalled_(?:rd|wr)_events$|link_down_events_phy$|rx_crc_errors_phy$|rx_oversize_pkts_phy$|"
    r"rx_out_of_range_len_phy$|rx_prio\d_packets$|tx_prio\d_packets$"
)
_PAUSE = re.compile(r"[rt]x_prio(\d)_pause$")

DISCARDS_PER_PACKET = 1e-6
"""Packets thrown away for want of a buffer, per packet received (rule of thumb; with PFC there are none)."""


class Card(TypedDict):
    """One interface below a RoCE port. None: not told by this driver."""

    statistics: Optional[Dict[str, int]]  # of ethtool, those in KEPT
    pfc: Optional[List[int]]  # priorities that PFC is on for
    ecn: Optional[List[int]]  # priorities with ECN on both as notification and reaction point
    why: Optional[str]  # why there are no statistics
    dcb: Optional[Dict[str, Any]]  # as `dcb.ask`: pfc, ets, dscp; None: the driver has no DCB


class Facts(TypedDict):
    cards: Dict[str, Card]  # by interface
    traffic_class: Dict[str, str]  # device -> content of /sys/class/infiniband/<dev>/tc/1/traffic_class


def collect(host: Host) -> Facts:
    facts: Facts = {"cards": {}, "traffic_class": {}}
    host.list("/sys/class")  # without it nothing can be said
    for device in host.names("/sys/class/infiniband"):
        base = f"/sys/class/infiniband/{device}"
        text = word(host, f"{base}/tc/1/traffic_class")
        if text:
            facts["traffic_class"][device] = text
        for name in names(host, f"{base}/device/net"):
            facts["cards"][name] = _card(host, name)
    return facts


def _card(host: Host, name: str) -> Card:
    statistics: Optional[Dict[str, int]] = None
    why = None
    try:
        told = host.ask(f"ethtool statistics of {name}", lambda: ethtool.statistics(name))
        statistics = {key: value for key, value in told.items() if KEPT.match(key)}
    except HostError as error:
        why = str(error)
    try:
        told_dcb: Optional[Dict[str, Any]] = host.ask(f"DCB of {name}", lambda: dcb.ask(name))
    except HostError:
        told_dcb = None
    pfc = None if statistics is None else sorted({int(m.group(1)) for m in map(_PAUSE.match, statistics) if m})
    pfc = told_dcb["pfc"] if told_dcb is not None and told_dcb["pfc"] is not None else pfc
    text = word(host, f"/sys/class/net/{name}/qos/pfc")
    if text:
        pfc = [priority for priority, bit in enumerate(text.replace(",", " ").split()) if bit == "1"]
    return {"statistics": statistics, "pfc": pfc, "ecn": _ecn(host, name), "why": why, "dcb": told_dcb}


def _ecn(host: Host, name: str) -> Optional[List[int]]:
    sides = []
    for side in ("roce_np", "roce_rp"):
        base = f"/sys/class/net/{name}/ecn/{side}/enable"
        on = {int(p) for p in names(host, base) if p.isdecimal() and word(host, f"{base}/{p}") == "1"}
        if not names(host, base):
            return None
        sides.append(on)
    return sorted(sides[0] & sides[1])


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    classes: Dict[str, str] = {}
    for node, facts in snapshot.each(PROBE.id):
        used = [one for one in machine.used_ports(snapshot, node) if one.port["link_layer"] == "Ethernet"]
        if not used:
            yield skip("NCCL takes no RoCE port of this node", node, source="/sys/class/infiniband")
            continue
        if all(one.device["busid"] is None for one in used):
            yield skip(
                "software RDMA devices have no priorities to protect", node, source="/sys/class/infiniband/*/parent"
            )
            continue
        cards = {name: facts["cards"][name] for one in used for name in one.port["netdevs"] if name in facts["cards"]}
        problems = [finding for name, card in cards.items() for finding in _losses(node, name, card)]
        problems += _class(snapshot, node, facts, cards, [one.device["name"] for one in used])
        yield from problems
        known = {
            name: _shown(card) for name, card in cards.items() if card["pfc"] is not None or card["ecn"] is not None
        }
        if not known:
            yield unknown(
                "the driver does not tell whether PFC or ECN is on for RoCE",
                node,
                source="ethtool -S, /sys/class/net/*/{qos,ecn}",
                remedy=" and ".join(f"mlnx_qos -i {name}" for name in list(cards)[:2])
                + ", and the switch's configuration, tell"
                if cards
                else "the switch's configuration tells",
            )
            continue
        classes[node] = Counter(known.values()).most_common(1)[0][0]
        if not problems and len(set(known.values())) == 1:
            yield ok(
                f"{classes[node]} on {counted(len(known), 'RoCE interface')}, no discards", node, source="ethtool -S"
            )
        yield from _uneven(node, known)
    yield from uneven(
        warn,
        classes,
        "{own}; on the other nodes {others}",
        source="ethtool -S, /sys/class/net/*/{qos,ecn}",
        cause="roce-lossless-missing",
        remedy="bring the cards of all nodes to the same PFC and ECN settings",
    )


def _shown(card: Card) -> str:
    def priorities(found: Optional[List[int]]) -> str:
        return "not told" if found is None else ",".join(map(str, found)) or "off"

    return f"PFC {priorities(card['pfc'])}, ECN {priorities(card['ecn'])}"


def _losses(node: str, name: str, card: Card) -> Iterator[Finding]:
    stats = card["statistics"] or {}
    dropped = {key: value for key, value in stats.items() if value and ("discard" in key or "pause_storm" in key)}
    received = sum(value for key, value in stats.items() if re.match(r"rx_prio\d_packets$", key))
    lost = sum(value for key, value in dropped.items() if "discard" in key)
    storm = any("pause_storm" in key for key in dropped)
    if storm or (lost and (not received or lost / received > DISCARDS_PER_PACKET)):
        shown = ", ".join(f"{key} {value}" for key, value in sorted(dropped.items(), key=lambda item: -item[1])[:4])
        yield warn(
            f"{name}: {shown} since the driver was loaded",
            node,
            source=f"ethtool -S {name}",
            device=name,
            observed=dropped,
            expected=f"below {DISCARDS_PER_PACKET:g} of the packets",
            cause="roce-lossless-missing",
            remedy="set PFC and ECN for one priority on all cards and switch ports, and NCCL_IB_TC so that NCCL uses it",
        )


def _class(
    snapshot: Snapshot, node: str, facts: Facts, cards: Dict[str, Card], devices: List[str]
) -> Iterator[Finding]:
    """PFC on a priority above 0, and traffic that is in none."""
    protected = sorted({priority for card in cards.values() for priority in (card["pfc"] or []) if priority > 0})
    given = integer(machine.values(snapshot, node).get("NCCL_IB_TC", ""))
    forced = [device for device in devices if "=" in facts["traffic_class"].get(device, "")]
    if not protected or forced:
        return
    if given is None or given <= 0:
        said, expected = "but NCCL_IB_TC is not set: NCCL sends in class 0, unprotected", "DSCP times 4"
    else:
        told = [_priority(card, given >> 2) for card in cards.values()]
        reached = sorted({priority for priority in told if priority is not None})
        if None in told or set(reached) & set(protected):
            return
        said = f"but NCCL_IB_TC={given} is DSCP {given >> 2}, which the cards put in priority {', '.join(map(str, reached))}"
        expected = f"a DSCP of priority {protected[0]}, times 4"
    yield warn(
        f"PFC is on for priority {', '.join(map(str, protected))}, {said}",
        node,
        source="DCB netlink, ethtool -S, NCCL_IB_TC",
        observed=given,
        expected=expected,
        cause="roce-lossless-missing",
        remedy=f"set NCCL_IB_TC to {_wanted(cards, protected[0])}, on all nodes",
    )


def _priority(card: Card, dscp: int) -> Optional[int]:
    """Where the card's own table puts that DSCP; None: it has told none."""
    table = (card.get("dcb") or {}).get("dscp") or {}
    return table.get(str(dscp), 0) if table else None


def _wanted(cards: Dict[str, Card], priority: int) -> str:
    """The traffic class of a protected priority: from the cards' own table, else in words."""
    for card in cards.values():
        table = (card.get("dcb") or {}).get("dscp") or {}
        for dscp in sorted(
            (int(text) for text, found in table.items() if found == priority), key=lambda one: (one != 26, one)
        ):
            return f"{dscp << 2} (DSCP {dscp}, which the cards put in priority {priority})"
    return "the DSCP of the protected class times 4 (DSCP 26: 104)"


def _uneven(node: str, known: Dict[str, str]) -> Iterator[Finding]:
    if len(set(known.values())) < 2:
        return
    usual = Counter(known.values()).most_common(1)[0][0]
    for name, text in known.items():
        if text != usual:
            yield warn(
                f"{name}: {text}; the other RoCE interfaces {usual}",
                node,
                source="ethtool -S, /sys/class/net/*/{qos,ecn}",
                device=name,
                observed=text,
                expected=usual,
                cause="roce-lossless-missing",
                remedy=f"set {name} like the others: mlnx_qos -i {name} --pfc …",
            )


PROBE = Probe(
    "roce-lossless",
    "RoCE traffic is in a protected class",
    judge,
    collect,
    needs=("rdma-devices", "nccl-environment", "nccl-conf-files"),
)
