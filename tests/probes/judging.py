"""Helpers for the tests of judges: from facts to findings in one line."""

from __future__ import annotations

from typing import Any

from ncdiag import registry
from ncdiag.check import check
from ncdiag.host import Host
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot

PROBES = registry.load()


def judged(probe: str, nodes: dict[str, dict[str, Any]], plan: Plan | None = None) -> list[Finding]:
    """What `probe` finds on nodes given as name -> (probe id -> facts)."""
    snapshot = Snapshot({name: NodeFacts(name, facts) for name, facts in nodes.items()}, plan or Plan())
    return check(snapshot, PROBES.chosen([probe]))


def collected(probe: str, host: Host) -> Any:
    """What the probe's `collect` reads there."""
    collect = PROBES[probe].collect
    assert collect is not None
    return collect(host)


def interfaces(*entries: str) -> dict[str, Any]:
    """Facts of the probe `interfaces`: `eth0=192.0.2.1/24`, with `!` for not running, `@kind` for its kind, `+driver` for a card.

    Addresses of one interface may be given in several entries.
    """
    links: dict[str, dict[str, Any]] = {}
    addresses = []
    for entry in entries:
        head, _, rest = entry.partition("=")
        name, _, kind = head.partition("@")
        name, _, driver = name.partition("+")
        down, rest = rest.endswith("!"), rest.rstrip("!")
        links.setdefault(
            name,
            {
                "index": len(links) + 1,
                "name": name,
                "flags": (["LOOPBACK"] if name == "lo" else []) + ([] if down else ["UP", "RUNNING", "LOWER_UP"]),
                "mtu": 1500,
                "operstate": "DOWN" if down else "UP",
                "mac": "",
                "kind": kind or None,
                "lower": None,
                "master": None,
                "counters": {},
                "driver": driver or None,
                "speed_mbits": None,
                "carrier_changes": None,
                "bond_mode": None,
                "bond_members": [],
            },
        )
        if rest:
            address, _, prefix = rest.partition("/")
            family = "inet6" if ":" in address else "inet"
            scope = "link" if address.startswith("fe80:") else "host" if name == "lo" else "global"
            addresses.append(
                {
                    "interface": name,
                    "name": name,
                    "family": family,
                    "address": address,
                    "prefix": int(prefix or 24),
                    "scope": scope,
                }
            )
    addresses.sort(key=lambda address: address["family"] != "inet")
    return {"source": "test", "links": list(links.values()), "addresses": addresses}
