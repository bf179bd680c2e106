"""The rules of a packet filter as plain JSON, from what `nft list ruleset` and `iptables-save` print. Travels to nodes.

A table: `family` (ip, ip6, inet), `name`, `sets` (name -> elements), `chains` (name -> `hook`, `kind`, `policy`, `rules`). Rules are lines in
nft's words. Only what a packet of this machine passes is kept.
Source: nft(8), iptables(8), iptables-save(8).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Sequence, Set

from ncdiag.nccl.packet_filter import HOOKS

MAX_RULES = 4000
"""Rules that are kept of one node; a Kubernetes node can have a hundred thousand, nearly all of them for address translation."""


def parse_nft(text: str) -> List[Dict[str, Any]]:
    """The tables of `nft list ruleset` as plain JSON: `family`, `name`, `sets`, `chains` (`hook`, `kind`, `policy`, `rules`)."""
    tables: List[Dict[str, Any]] = []
    chain: Optional[Dict[str, Any]] = None
    for line in _joined(text):
        words = line.split()
        if words[:1] == ["table"] and len(words) > 3:
            tables.append({"family": words[1], "name": words[2], "sets": {}, "chains": {}})
        elif words[:1] in (["set"], ["map"]) and tables:
            chain = None
            elements = re.search(r"elements = \{([^}]*)\}", line)
            tables[-1]["sets"][words[1]] = (
                [item.strip() for item in elements.group(1).split(",")][:2000] if elements else []
            )
        elif words[:1] == ["chain"] and tables:
            chain = {"hook": None, "kind": None, "policy": "accept", "rules": []}
            tables[-1]["chains"][words[1]] = chain
        elif words[:1] == ["type"] and chain is not None and "hook" in words:
            policy = re.search(r"policy (\w+)", line)
            chain.update(
                kind=words[1], hook=words[words.index("hook") + 1], policy=policy.group(1) if policy else "accept"
            )
        elif words and words != ["}"] and chain is not None:
            chain["rules"].append(line.strip())
    return _needed(tables)


def _joined(text: str) -> List[str]:
    """Lines, those of a set (which has several, and elements over more) made one."""
    found: List[str] = []
    depth = 0
    for line in text.splitlines():
        stripped = line.strip()
        if depth:
            found[-1] += " " + stripped
            depth += stripped.count("{") - stripped.count("}")
        elif re.match(r"(set|map) \S+ \{$", stripped):
            found.append(stripped)
            depth = 1
        elif stripped:
            found.append(stripped)
    return found


def _needed(tables: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Only chains that a packet of this machine passes: base chains that filter, and what they jump to."""
    kept = []
    for table in tables:
        if table["family"] not in ("ip", "ip6", "inet"):
            continue
        todo = [
            name
            for name, chain in table["chains"].items()
            if chain["hook"] in HOOKS["in"] + HOOKS["out"] and chain["kind"] != "nat"
        ]
        wanted: Set[str] = set()
        while todo:
            name = todo.pop()
            if name in table["chains"] and name not in wanted:
                wanted.add(name)
                todo += re.findall(r"\b(?:jump|goto) ([^\s,}]+)", "\n".join(table["chains"][name]["rules"]))
        if wanted:
            chains = {name: chain for name, chain in table["chains"].items() if name in wanted}
            used = set(re.findall(r"@(\S+)", "\n".join(rule for chain in chains.values() for rule in chain["rules"])))
            kept.append(
                {
                    **table,
                    "chains": chains,
                    "sets": {name: items for name, items in table["sets"].items() if name in used},
                }
            )
    return kept


def parse_iptables(text: str, family: str = "ip") -> List[Dict[str, Any]]:
    """The tables of `iptables-save` (family `ip`) or `ip6tables-save` (`ip6`) in the same shape, each rule in nft's words."""
    tables: List[Dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith("*"):
            tables.append({"family": family, "name": line[1:].strip(), "sets": {}, "chains": {}})
        elif line.startswith(":") and tables:
            name, policy = line[1:].split()[:2]
            base = name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING") and policy != "-"
            tables[-1]["chains"][name] = {
                "hook": name.lower() if base else None,
                "kind": "nat" if tables[-1]["name"] == "nat" else "filter",
                "policy": policy.lower() if policy != "-" else "accept",
                "rules": [],
            }
        elif line.startswith("-A ") and tables:
            words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', line)]
            tables[-1]["chains"].setdefault(
                words[1], {"hook": None, "kind": "filter", "policy": "accept", "rules": []}
            )["rules"].append(_from_iptables(words[2:], family))
    return _needed(tables)


def _from_iptables(words: List[str], family: str) -> str:
    """One rule in nft's words; a match that is not translated stays as a word that no one understands."""
    proto = words[words.index("-p") + 1] if "-p" in words else "th"
    simple = {
        "-i": "iifname",
        "-o": "oifname",
        "-s": family + " saddr",
        "-d": family + " daddr",
        "-p": "meta l4proto",
        "--dport": proto + " dport",
        "--sport": proto + " sport",
        "--dports": proto + " dport",
        "--sports": proto + " sport",
        "--ctstate": "ct state",
        "--state": "ct state",
    }
    found, negated, place = [], "", 0
    while place < len(words):
        word, value = words[place], words[place + 1] if place + 1 < len(words) else ""
        place += 2
        if word == "!":
            negated, place = "!= ", place - 1
            continue
        if word in simple:
            value = (
                value.lower()
                if "state" in simple[word]
                else value.replace(":", "-")
                if "port" in word
                else value.replace("+", "*")
            )
            found.append(
                "%s %s%s"
                % (simple[word], negated, "{ %s }" % value if "," in value and "state" not in simple[word] else value)
            )
        elif word in ("-j", "-g"):
            verdict = {
                "ACCEPT": "accept",
                "DROP": "drop",
                "REJECT": "reject",
                "RETURN": "return",
                "LOG": "",
                "NFLOG": "",
                "MARK": "",
                "CONNMARK": "",
            }
            found.append(verdict.get(value, ("jump " if word == "-j" else "goto ") + value))
            break
        elif word == "--comment" or (
            word == "-m" and value in ("tcp", "udp", "comment", "conntrack", "state", "multiport", "mark")
        ):
            continue
        elif word == "--mark":
            found.append(
                "meta mark & %s %s %s"
                % (value.partition("/")[2] or "0xffffffff", negated.strip() or "==", value.partition("/")[0])
            )
        else:
            found.append("match:%s" % word)
            place -= 0 if value and not value.startswith("-") else 1
        negated = ""
    return " ".join(found)
