"""Addresses that two nodes share, and those that may be the same everywhere."""

from __future__ import annotations

from typing import Any

from ncdiag import registry
from ncdiag.check import check
from ncdiag.model import Finding, NodeFacts, Snapshot

PROBES = registry.load()


def link(name: str, mac: str, **more: Any) -> dict[str, Any]:
    return {
        "index": 1, "name": name, "flags": ["UP", "RUNNING"], "mtu": 9000, "operstate": "UP", "mac": mac, "kind": None, "counters": {},
        "lower": None, "master": None, "driver": "mlx5_core", "speed_mbits": None, "carrier_changes": 1, "bond_mode": None, "bond_members": [],
        **more,
    }  # fmt: skip


def machine(address: str, mac: str) -> dict[str, Any]:
    links = [link("eth0", mac), link("docker0", "024200000001", kind="bridge", driver=None)]
    entries = [("eth0", address, 24), ("docker0", "172.17.0.1", 16)]
    return {
        "source": "rtnetlink",
        "links": links,
        "addresses": [
            {"interface": name, "name": name, "family": "inet", "address": ip, "prefix": bits, "scope": "global"}
            for name, ip, bits in entries
        ],
    }


def judged(**machines: dict[str, Any]) -> list[Finding]:
    nodes = {name: NodeFacts(name, {"interfaces": facts}) for name, facts in machines.items()}
    return check(Snapshot(nodes), PROBES.chosen(["address-unique"]))


def test_addresses_of_their_own() -> None:
    (finding,) = judged(a=machine("192.0.2.1", "0a0000000001"), b=machine("192.0.2.2", "0a0000000002"))
    assert finding.status.value == "ok" and "none of them twice" in finding.summary, "docker0 is the same everywhere"


def test_two_nodes_with_one_ip() -> None:
    machines = {f"gpu{n:02d}": machine(f"192.0.2.{n}", f"0a00000000{n:02d}") for n in range(1, 5)}
    machines["gpu05"] = machine("192.0.2.3", "0a0000000005")
    (finding,) = judged(**machines)
    assert (finding.status.value, finding.cause) == ("fail", "bootstrap-peer-unreachable")
    assert "192.0.2.3 is the address of eth0 on gpu[03,05]" in finding.summary and finding.where == {
        "node": "gpu05",
        "device": "eth0",
    }


def test_two_nodes_with_one_mac() -> None:
    found = judged(a=machine("192.0.2.1", "0a0000000001"), b=machine("192.0.2.2", "0a0000000001"))
    assert [finding.status.value for finding in found] == ["warn", "ok"] and "0a:00:00:00:00:01" in found[0].summary


def test_one_node_has_nothing_to_compare() -> None:
    assert [finding.status.value for finding in judged(a=machine("192.0.2.1", "0a0000000001"))] == ["skip"]
