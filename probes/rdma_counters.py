"""No RDMA port loses packets, and no link goes up and down.

A fabric that drops one packet in a million still works and is slow; one that drops more ends in `local_ack_timeout_err`, then in
NCCL's status 12. The counters stand still where all is well, so what grows while we look weighs most; what has gathered since the
driver was loaded is set against the packets sent, as one repair long ago must not look like a fault.

Source: ports/<n>/{counters,hw_counters} in /sys/class/infiniband; meanings and thresholds in ncdiag/nccl/counters.py.
"""

from __future__ import annotations

import re
import time
from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn
from ncdiag.nccl import counters as meaning
from ncdiag.nccl.sysfs import names, numbered, word
from ncdiag.nodeset import counted

CLASS = "/sys/class/infiniband"
WINDOW_S = 1.0  # between two readings
_UPTIME = re.compile(r"\d{1,12}(?:\.\d{1,9})?(?=\s|$)", re.ASCII)
NOT_COUNTERS = ("lifespan",)  # a setting of the RDMA core that lies among them


class Port(TypedDict):
    device: str
    port: int
    state: Optional[str]  # ACTIVE, DOWN, …
    link_layer: Optional[str]
    values: Dict[str, int]  # counters and hw_counters of the port, hw_counters of the device
    grown: Dict[str, int]  # what was added within the window, only what is not 0
    unread: int  # counters that gave an error or no number


class Facts(TypedDict):
    window_s: float  # 0.0 for a captured tree: nothing can grow in it
    uptime_s: Optional[float]  # /proc/uptime
    ports: List[Port]


def collect(host: Host) -> Facts:
    host.list("/sys/class")  # without it nothing can be said
    first = _read(host)
    window = 0.0
    if first and not host.recorded:
        started = time.monotonic()
        time.sleep(WINDOW_S)
        second = _read(host)
        window = time.monotonic() - started
        for port, later in zip(first, second):
            both = {
                name: meaning.delta(value, later["values"].get(name, value)) for name, value in port["values"].items()
            }
            port["grown"] = {name: value for name, value in both.items() if value}
    uptime = _UPTIME.match(word(host, "/proc/uptime") or "")
    return {"window_s": round(window, 3), "uptime_s": float(uptime.group()) if uptime else None, "ports": first}


def _read(host: Host) -> List[Port]:
    ports: List[Port] = []
    for device in host.names(CLASS):
        for number in numbered(host, f"{CLASS}/{device}/ports"):
            base = f"{CLASS}/{device}/ports/{number}"
            port: Port = {
                "device": device,
                "port": number,
                "state": (word(host, f"{base}/state") or "").partition(": ")[2] or None,
                "link_layer": word(host, f"{base}/link_layer"),
                "values": {},
                "grown": {},
                "unread": 0,
            }
            for folder in (f"{CLASS}/{device}/hw_counters", f"{base}/counters", f"{base}/hw_counters"):
                _add(host, folder, port)
            ports.append(port)
    return ports


def _add(host: Host, folder: str, port: Port) -> None:
    for name in names(host, folder):
        if name in NOT_COUNTERS:
            continue
        try:
            port["values"][name] = int(host.value(f"{folder}/{name}") or "")
        except (HostError, ValueError):
            port["unread"] += 1


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        if not facts["ports"]:
            yield skip("no RDMA port on this node", node, source=CLASS)
            continue
        problems = [finding for port in facts["ports"] for finding in _port(node, facts, port)]
        yield from problems
        counted = [port for port in facts["ports"] if port["values"]]
        if not counted:
            yield unknown("the drivers give no counters", node, source=f"{CLASS}/*/ports/*/counters")
        elif not problems:
            looked = f", none growing within {facts['window_s']:g} s" if facts["window_s"] else ""
            yield ok(
                f"no loss and no flapping link on {len(counted)} RDMA ports{looked}", node, source=f"{CLASS}/*/ports/*"
            )


def _port(node: str, facts: Facts, port: Port) -> Iterator[Finding]:
    name = f"{port['device']}:{port['port']}"
    source = f"{CLASS}/{port['device']}/ports/{port['port']}"
    now_link, now_loss = meaning.signs(port["grown"], meaning.LINK), meaning.signs(port["grown"], meaning.LOSS)
    if now_link or now_loss:
        growing = {**now_link, **now_loss}
        shown = ", ".join(f"{counter} +{value}" for counter, value in list(growing.items())[:4])
        yield warn(
            f"{name}: errors are growing: {shown} within {facts['window_s']:g} s",
            node,
            source=source,
            device=port["device"],
            observed=growing,
            expected=0,
            cause=_cause(port, bool(now_link)),
            remedy=_remedy(port, bool(now_link)),
        )
        return
    yield from _since_boot(node, facts, port, name, source)
    stuck = [counter for counter, most in meaning.MAXIMA.items() if port["values"].get(counter) == most]
    if stuck:
        yield unknown(
            f"{name}: {', '.join(stuck)} stand at their maximum and count no further",
            node,
            source=f"{source}/counters",
            device=port["device"],
            remedy="reset them (perfquery -x -R) and look again",
        )


def _since_boot(node: str, facts: Facts, port: Port, name: str, source: str) -> Iterator[Finding]:
    values = port["values"]
    rate = meaning.loss(values, facts["uptime_s"], ordered=port["link_layer"] == "Ethernet")
    if rate.matters:
        shown = ", ".join(
            f"{counter} {value}" for counter, value in list(meaning.signs(values, meaning.LOSS).items())[:4]
        )
        share = f"{rate.per_packet:.1g} of the packets sent" if rate.per_packet else "packets not counted"
        yield warn(
            f"{name}: {shown} since the driver was loaded ({share})",
            node,
            source=f"{source}/hw_counters",
            device=port["device"],
            observed=rate.events,
            unit="events",
            expected=f"below {meaning.LOSS_PER_PACKET:g} of the packets",
            cause=_cause(port, False),
            remedy=_remedy(port, False),
        )
    flaps = values.get("link_downed", 0)
    days = facts["uptime_s"] / 86400 if facts["uptime_s"] else None
    often = days is None or flaps / max(days, 1.0) > meaning.FLAPS_PER_DAY
    if flaps >= meaning.FLAPS_AT_LEAST and often and flaps != meaning.MAXIMA["link_downed"]:
        since = f"in {days:.1f} days" if days else "since the driver was loaded"
        yield warn(
            f"{name}: the link went down {counted(flaps, 'time')} {since}",
            node,
            source=f"{source}/counters/link_downed",
            device=port["device"],
            observed=flaps,
            unit="times",
            expected=f"at most {meaning.FLAPS_PER_DAY:g} a day",
            cause="ib-link-or-hca-fault",
            remedy=_remedy(port, True),
        )


def _cause(port: Port, link: bool) -> str:
    if link or port["link_layer"] != "Ethernet":
        return "ib-link-or-hca-fault"
    return "roce-lossless-missing"


def _remedy(port: Port, link: bool) -> str:
    if link or port["link_layer"] != "Ethernet":
        return "replace or reseat cable and optics, look at the switch port's own counters, then watch them again"
    return "check PFC and ECN on hosts and switches and NCCL_IB_TC, then cable and optics; watch the counters during an all-reduce"


PROBE = Probe("rdma-counters", "No RDMA port loses packets or flaps", judge, collect, timeout_s=20.0)
