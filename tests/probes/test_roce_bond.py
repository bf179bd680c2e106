from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import graver, statuses

TREES = Path(__file__).parent.parent / "trees"
PROBES = load().chosen(["roce-bond"])


def link(
    name: str, running: bool = True, mode: str | None = None, members: tuple[str, ...] = (), master: str | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "flags": ["UP", "RUNNING"] if running else ["UP"],
        "bond_mode": mode,
        "bond_members": list(members),
        "master": master,
    }


def node(netdev: str, *links: dict[str, Any]) -> Snapshot:
    port = {"number": 1, "state": "ACTIVE", "link_layer": "Ethernet", "netdevs": [netdev]}
    facts = {
        "rdma-devices": {"devices": [{"name": "mlx5_bond_0", "ports": [port]}]},
        "interfaces": {"links": list(links)},
    }
    return Snapshot({"a": NodeFacts("a", facts)})


@pytest.mark.parametrize(
    ("snapshot", "status", "cause"),
    [
        (node("bond0", link("bond0", mode="802.3ad", members=("p0", "p1")), link("p0"), link("p1")), "ok", None),
        (
            node("bond0", link("bond0", mode="balance-rr", members=("p0", "p1")), link("p0"), link("p1")),
            "warn",
            "roce-over-bond",
        ),
        (
            node("bond0", link("bond0", mode="802.3ad", members=("p0", "p1")), link("p0"), link("p1", running=False)),
            "warn",
            "ib-link-or-hca-fault",
        ),
        (
            node("p0", link("p0", master="bond0"), link("bond0", mode="802.3ad", members=("p0",))),
            "warn",
            "roce-over-bond",
        ),
        (node("p0", link("p0")), "skip", None),
    ],
)
def test_bonds(snapshot: Snapshot, status: str, cause: str | None) -> None:
    findings = check(snapshot, PROBES)
    assert statuses(findings) == [status]
    assert [finding.cause for finding in graver(findings)] == ([cause] if cause else [])


def test_captured_bond() -> None:
    probes = load()
    facts = collect(Recorded(open_tree(str(TREES / "bond-active-backup.tar.gz"))), probes.sources(["roce-bond"]))
    (finding,) = check(Snapshot({"a": facts}), PROBES)
    assert finding.summary == "rxe0:1 over bond0: active-backup, 2 members up"


def test_captured_bond_without_a_link() -> None:
    probes = load()
    facts = collect(Recorded(open_tree(str(TREES / "bond-all-slaves-down.tar.gz"))), probes.sources(["roce-bond"]))
    (finding,) = check(Snapshot({"a": facts}), PROBES)
    assert finding.summary == "rxe0:1 is down: no member of bond0 is up (veth0, veth2)"
    assert finding.cause == "ib-link-or-hca-fault" and finding.where["device"] == "rxe0"
