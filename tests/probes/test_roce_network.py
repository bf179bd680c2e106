from __future__ import annotations

from tests.env.clusters import with_links
from tests.probes.machines import Machine, graver, judged, statuses


def node(name: str, *addresses: str) -> Machine:
    machine = Machine(name)
    for number, address in enumerate(addresses):
        gids = (("fe80::1", 2), (f"::ffff:{address}", 2))
        machine.card(f"mlx5_{number}", f"0000:1{number}:00.0", layer="Ethernet", netdev=f"eth{number}", gids=gids)
    return with_links(machine, *((f"eth{number}", address) for number, address in enumerate(addresses)))


def test_rails_with_a_network_each() -> None:
    machines = (node("a", "192.0.2.1", "198.51.100.1"), node("b", "192.0.2.2", "198.51.100.2"))
    assert statuses(judged("roce-network", *machines)) == ["ok", "ok"]


def test_one_node_in_a_network_of_its_own() -> None:
    machines = (
        node("a", "192.0.2.1", "198.51.100.1"), node("b", "192.0.2.2", "198.51.100.2"), node("c", "192.0.2.3", "203.0.113.3"),
    )  # fmt: skip
    (finding,) = graver(judged("roce-network", *machines))
    assert finding.where["node"] == "c" and finding.observed == ["203.0.113.0/24"]
    assert "mlx5_1:1 in 203.0.113.0/24" in finding.summary


def test_a_routed_fabric_is_no_fault() -> None:
    machines = (node("a", "192.0.2.1"), node("b", "198.51.100.2"), node("c", "203.0.113.3"))
    assert statuses(judged("roce-network", *machines)) == ["skip"] * 3


def test_one_node_and_none() -> None:
    assert statuses(judged("roce-network", node("a", "192.0.2.1"))) == ["skip"]
    assert statuses(judged("roce-network", with_links(Machine("a")))) == ["skip"]


def test_link_local_has_no_network() -> None:
    lone = with_links(
        Machine("a").card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth0", gids=(("fe80::1", 2),))
    )
    assert statuses(judged("roce-network", lone)) == ["unknown"]
