from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.env.clusters import with_links
from tests.probes.machines import Machine, graver, judged, statuses

TREES = Path(__file__).parent.parent / "trees"


def machine(second: str = "192.0.2.2", **conf: int | None) -> Machine:
    """Two cards; `conf`: `all_arp_ignore=1`, `eth1_rp_filter=1`; None leaves the file out."""
    one = Machine()
    addresses = {"eth1": "192.0.2.1", "eth2": second}
    for number, (netdev, address) in enumerate(addresses.items()):
        gids = (("fe80::1", 2), (f"::ffff:{address}", 2))
        one.card(f"mlx5_{number}", f"0000:1{number}:00.0", layer="Ethernet", netdev=netdev, gids=gids)
    settings = {f"{name}_{key}": 0 for name in ("all", "eth1", "eth2") for key in ("arp_ignore", "rp_filter")}
    for key, value in {**settings, **conf}.items():
        if value is not None:
            name, _, file = key.partition("_")
            one.file(f"/proc/sys/net/ipv4/conf/{name}/{file}", f"{value}\n")
    return with_links(one, *addresses.items())


@pytest.mark.parametrize(
    ("conf", "status", "words"),
    [
        ({}, "warn", "eth1, eth2 answers ARP"),
        ({"all_arp_ignore": 1}, "ok", ""),
        ({"eth1_arp_ignore": 1}, "warn", "eth2 answers ARP"),
        ({"eth1_arp_ignore": 1, "eth2_arp_ignore": 2}, "ok", ""),
        ({"all_arp_ignore": 1, "all_rp_filter": 1}, "warn", "rp_filter 1"),
        ({"all_arp_ignore": 1, "all_rp_filter": 1, "eth1_rp_filter": 2, "eth2_rp_filter": 2}, "ok", ""),
        ({"all_arp_ignore": None, "eth1_arp_ignore": None}, "unknown", "was not read"),
    ],
)
def test_two_cards_in_one_network(conf: dict[str, Any], status: str, words: str) -> None:
    (finding,) = judged("roce-arp", machine(**conf))
    assert finding.status.value == status and words in finding.summary
    if status == "warn":
        assert graver([finding])[0].cause == "ib-path-unreachable"


def test_a_network_for_each_card() -> None:
    assert statuses(judged("roce-arp", machine("198.51.100.2"))) == ["skip"]


def test_a_captured_machine() -> None:
    probes = load()
    node = collect(
        Recorded(open_tree(str(TREES / "healthy-rocev2-gid3-empty.tar.gz")), "a"), probes.sources(["roce-arp"])
    )
    assert statuses(check(Snapshot({"a": node}), probes.chosen(["roce-arp"]))) == ["ok"]
