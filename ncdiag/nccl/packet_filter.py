"""What a packet filter does with a connection: its rules, as `filter_rules` gives them, walked for one flow.

Three answers, never a guess: a condition that is not understood (a rate limit, a match module) leaves both ways open. Marks count as
unset. Pure; travels to nodes.
Source: nft(8), iptables(8); the order of hooks and verdicts in the netfilter documentation.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

HOOKS = {"in": ("prerouting", "input"), "out": ("output", "postrouting")}
TOKEN = re.compile(r'"[^"]*"|\{[^}]*\}|\([^)]*\)|[^\s;]+')


class Flow(NamedTuple):
    """The first packet of one connection."""

    direction: str
    """`in` or `out`."""
    proto: str
    """`tcp` or `udp`."""
    port: int
    """Destination."""
    interface: str
    """That it comes in or goes out by."""
    source: str
    destination: str

    @property
    def family(self) -> str:
        return "ip6" if ":" in self.source else "ip"


class Verdict(NamedTuple):
    """Where a flow can end: `accept`, `drop`; both when that hangs on what is not known here."""

    ends: Tuple[str, ...]
    rules: Tuple[str, ...]
    """The rules and policies that would drop it."""


def walk(tables: Sequence[Mapping[str, Any]], flow: Flow) -> Verdict:
    """Through every base chain of the flow's direction; a drop in one is final, an accept only ends that chain."""
    ends: Set[str] = {"accept"}
    rules: List[str] = []
    for table in tables:
        if table["family"] not in ("inet", flow.family):
            continue
        for name, chain in table["chains"].items():
            if chain["hook"] not in HOOKS[flow.direction] or chain["kind"] == "nat":
                continue
            results, why = _chain(table, name, flow, 0)
            if "next" in results:
                results = (results - {"next"}) | {chain["policy"]}
                if chain["policy"] == "drop":
                    why.append("policy drop of %s %s %s" % (table["family"], table["name"], name))
            if "drop" in results:
                rules += why
            ends = {"drop"} if results == {"drop"} else ends | (results & {"drop"})
            if results == {"drop"}:
                return Verdict(("drop",), tuple(rules))
    return Verdict(tuple(sorted(ends)), tuple(rules))


def _chain(table: Mapping[str, Any], name: str, flow: Flow, depth: int) -> Tuple[Set[str], List[str]]:
    """Where the flow can leave the chain (`accept`, `drop`, `next`), and the rules that would drop it."""
    ends: Set[str] = set()
    why: List[str] = []
    if depth > 16 or name not in table["chains"]:
        return {"next"}, why
    for rule in table["chains"][name]["rules"]:
        sure, verdict = _rule(table, rule, flow)
        if sure is False or verdict is None:
            continue
        if verdict.startswith(("jump ", "goto ")):
            found, reasons = _chain(table, verdict[5:], flow, depth + 1)
            ends |= found - {"next"}
            why += reasons
            if verdict.startswith("goto ") and "next" in found:
                ends.add("next")
            if sure and ("next" not in found or verdict.startswith("goto ")):
                return ends, why
            continue
        ends.add({"return": "next", "reject": "drop", "continue": "next"}.get(verdict, verdict))
        if verdict in ("drop", "reject"):
            why.append("%s %s: %s" % (table["name"], name, rule))
        if sure:
            return ends, why
    return ends | {"next"}, why


def _rule(table: Mapping[str, Any], rule: str, flow: Flow) -> Tuple[Optional[bool], Optional[str]]:
    """`(does it match: yes, no, None for not known, its verdict or None)`."""
    words = TOKEN.findall(rule)
    sure: Optional[bool] = True
    place = 0
    while place < len(words):
        used, truth, verdict = _step(table, words[place:], flow)
        if verdict is not None:
            return sure, verdict
        if truth is False:
            return False, None
        sure = None if truth is None else sure
        place += used
    return sure, None


_KEYS = {
    ("iifname",),
    ("oifname",),
    ("iif",),
    ("oif",),
    ("ip", "saddr"),
    ("ip", "daddr"),
    ("ip6", "saddr"),
    ("ip6", "daddr"),
    ("ip", "protocol"),
    ("ip6", "nexthdr"),
    ("meta", "l4proto"),
    ("meta", "nfproto"),
    ("meta", "iifname"),
    ("meta", "oifname"),
    ("tcp", "dport"),
    ("udp", "dport"),
    ("th", "dport"),
    ("tcp", "sport"),
    ("udp", "sport"),
    ("th", "sport"),
    ("ct", "state"),
    ("icmp", "type"),
    ("icmpv6", "type"),
    ("meta", "mark"),
}


def _step(table: Mapping[str, Any], words: Sequence[str], flow: Flow) -> Tuple[int, Optional[bool], Optional[str]]:
    """`(words used, truth, verdict)` of the condition, statement or verdict that `words` begin with."""
    first = words[0]
    if first in ("accept", "drop", "reject", "return", "continue"):
        return 1, True, first
    if first in ("jump", "goto") and len(words) > 1:
        return 2, True, "%s %s" % (first, words[1])
    if tuple(words[:2]) == ("tcp", "flags"):
        return _flags(words, flow)
    if first == "counter":
        return (5 if words[1:2] == ["packets"] else 1), True, None
    if first in ("log", "comment", "notrack", "masquerade", "flow"):
        return _until_verdict(words), True, None
    if first in (
        "fib",
        "rt",
        "socket",
        "numgen",
        "jhash",
    ):  # with keys of their own in it: not understood, up to the verdict
        return _until_verdict(words), None, None
    for length in (2, 1):
        key = tuple(words[:length])
        if key in _KEYS and len(words) > length:
            return _condition(table, key, words[length:], flow, length)
    return 1, None, None


def _until_verdict(words: Sequence[str]) -> int:
    """How many words stand before the verdict."""
    return next(
        (at for at, word in enumerate(words) if word in ("accept", "drop", "reject", "return", "jump", "goto")),
        len(words),
    )


def _flags(words: Sequence[str], flow: Flow) -> Tuple[int, Optional[bool], Optional[str]]:
    """`tcp flags & (fin | syn | rst | ack) == syn`: the first packet of a connection has only SYN."""
    sign = next((at for at, word in enumerate(words) if word in ("==", "!=")), 0)
    if flow.proto != "tcp":
        return len(words), False, None
    if not sign or sign + 1 >= len(words):
        return 2, None, None
    return sign + 2, (words[sign + 1].strip("()") == "syn") == (words[sign] == "=="), None


def _condition(
    table: Mapping[str, Any], key: Tuple[str, ...], rest: Sequence[str], flow: Flow, used: int
) -> Tuple[int, Optional[bool], Optional[str]]:
    if rest[0] == ".":  # a concatenation: not understood, up to the verdict
        return used + _until_verdict(rest), None, None
    if rest[0] == "vmap" and len(rest) > 1:
        return _verdict_map(table, key, rest[1], flow, used + 2)
    if key == ("meta", "mark"):
        length = next((at + 1 for at, word in enumerate(rest[:-1], 1) if word in ("==", "!=")), 0)
        if rest[0] == "set":
            return used + len(rest), True, None
        return (
            (used + length, rest[length - 2] == "!=", None)
            if length
            else (used + 1, rest[0] in ("0", "0x00000000"), None)
        )
    negated = rest[0] == "!="
    place = 1 if rest[0] in ("!=", "==") else 0
    truth = _holds(table, key, rest[place] if place < len(rest) else "", flow)
    return used + place + 1, (not truth if negated else truth) if truth is not None else None, None


def _verdict_map(
    table: Mapping[str, Any], key: Tuple[str, ...], body: str, flow: Flow, used: int
) -> Tuple[int, Optional[bool], Optional[str]]:
    for item in body.strip("{}").split(","):
        value, _, verdict = item.rpartition(" : ")
        if value.strip() and _holds(table, key, value.strip(), flow):
            return used, True, verdict.strip()
    return used, (None if body.startswith("@") else False), None


def _holds(table: Mapping[str, Any], key: Tuple[str, ...], value: str, flow: Flow) -> Optional[bool]:
    """Whether the flow has one of the values; None when that is not known."""
    if value.startswith("@"):
        elements = table["sets"].get(value[1:])
        if elements is None:
            return None
        items = [element.split()[0] for element in elements if element]
    else:
        items = [item.strip().strip('"') for item in value.strip("{} ").split(",")]
    name = key[-1]
    if name in ("iifname", "iif", "oifname", "oif"):
        if (name[0] == "i") != (flow.direction == "in"):
            return False
        return any(fnmatch.fnmatchcase(flow.interface, item) for item in items)
    if name in ("saddr", "daddr"):
        return key[0] == flow.family and any(
            _in(item, flow.source if name == "saddr" else flow.destination) for item in items
        )
    if name in ("protocol", "nexthdr", "l4proto"):
        return flow.proto in items or {"tcp": "6", "udp": "17"}[flow.proto] in items or "all" in items
    if name == "nfproto":
        return {"ip": "ipv4", "ip6": "ipv6"}[flow.family] in items
    if name in ("dport", "sport"):
        if key[0] not in ("th", flow.proto):
            return False
        return any(_port_in(item, flow.port) for item in items) if name == "dport" else None
    if key == ("ct", "state"):
        return any(item in ("new", "untracked") and item == "new" for item in items)
    return False  # icmp: the flow is another protocol


def _in(item: str, address: str) -> bool:
    try:
        first, _, last = item.partition("-")
        if last:
            return ipaddress.ip_address(first) <= ipaddress.ip_address(address) <= ipaddress.ip_address(last)  # type: ignore[operator]
        return ipaddress.ip_address(address) in ipaddress.ip_network(item, strict=False)
    except (ValueError, TypeError):
        return False


SERVICES = {"ssh": 22, "http": 80, "https": 443, "domain": 53}


def _port_in(item: str, port: int) -> bool:
    first, _, last = item.partition("-")
    try:
        return int(SERVICES.get(first, first)) <= port <= int(SERVICES.get(last, last) or SERVICES.get(first, first))
    except ValueError:
        return False
