from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses

TREES = Path(__file__).parent.parent / "trees"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("healthy-rocev2-gid3-empty", ["ok"]),
        ("pci-switches-numa-8rail", ["ok"]),
        ("bond-active-backup", ["ok"]),
        ("port-down-admin", ["warn"]),
        ("port-down-no-carrier", ["warn"]),
        ("no-rdma-device", ["skip"]),
        ("no-rdma-modules", ["skip"]),
    ],
)
def test_captured_machines(tree: str, expected: list[str]) -> None:
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz")), tree), probes.sources(["rdma-port"]))
    assert statuses(check(Snapshot({tree: node}), probes.chosen(["rdma-port"]))) == expected


def test_eight_rails() -> None:
    (finding,) = judged("rdma-port", eight_rails())
    assert finding.summary == "8 RDMA ports ACTIVE (8 x 400 Gb/s)"


def test_one_of_eight_down_alone_is_a_warning() -> None:
    (finding,) = graver(judged("rdma-port", eight_rails(down=[5])))
    assert (finding.status.value, finding.where["device"], finding.cause) == ("warn", "mlx5_5", "ib-link-or-hca-fault")
    assert "Polling" in finding.summary and "cable" in (finding.remedy or "")


def test_one_of_eight_down_where_it_is_up_elsewhere_is_a_failure() -> None:
    (finding,) = graver(judged("rdma-port", eight_rails("a"), eight_rails("b", down=[5])))
    assert (finding.status.value, finding.where) == ("fail", {"node": "b", "device": "mlx5_5"})


def test_down_everywhere_is_unused() -> None:
    findings = judged("rdma-port", eight_rails("a", down=[5]), eight_rails("b", down=[5]))
    assert statuses(findings) == ["ok", "ok", "skip", "skip"]


def test_half_of_the_ports_unused_on_one_node() -> None:
    assert not graver(judged("rdma-port", eight_rails(down=[1, 3, 5, 7])))


def test_nothing_active_is_no_health() -> None:
    findings = judged("rdma-port", eight_rails(down=range(8)))
    assert statuses(findings) == ["warn"] * 8 and "sockets" in findings[0].summary


def test_no_subnet_manager() -> None:
    machine = eight_rails(state="2: INIT", sm_lid="0x0")
    assert {finding.status.value for finding in judged("rdma-port", machine)} == {"fail"}
    assert all("subnet manager" in finding.summary for finding in judged("rdma-port", machine))
    assert len(graver(judged("rdma-port", eight_rails(sm_lid="0x0")))) == 8


def test_slower_than_its_kind() -> None:
    machine = eight_rails(without=[5])
    machine.card("mlx5_5", "0000:27:01.0", ["0000:24:01.0"], rate="100 Gb/sec (1X NDR)")
    (finding,) = graver(judged("rdma-port", machine))
    assert "100 Gb/s, 1X, the others of its kind 400 Gb/s" in finding.summary


def test_two_fabrics() -> None:
    machine = eight_rails()
    machine.card(
        "mlx5_8", "0000:60:00.0", layer="Ethernet", netdev="eth0", board="MT_0000000359", rate="100 Gb/sec (4X EDR)"
    )
    (finding,) = graver(judged("rdma-port", machine))
    assert finding.cause == "mixed-hca-fabrics"


def test_node_without_any_beside_nodes_with_them() -> None:
    (finding,) = graver(judged("rdma-port", eight_rails("a"), Machine("b")))
    assert (finding.status.value, finding.cause, finding.where["node"]) == ("fail", "rdma-unavailable", "b")


def test_card_without_rdma_device() -> None:
    machine = Machine()
    machine.function("0000:10:00.0", pci_class="0x020700", driver="mlx5_core")
    (finding,) = graver(judged("rdma-port", machine))
    assert finding.cause == "rdma-unavailable" and "0000:10:00.0" in finding.summary


def test_efa_is_named() -> None:
    machine = Machine()
    machine.card(
        "rdmap0s31",
        "0000:00:1f.0",
        layer="Unspecified",
        board="",
        driver="efa",
        vendor="0x1d0f",
        rate="100 Gb/sec (4X EDR)",
    )
    findings = judged("rdma-port", machine)
    assert any("aws-ofi-nccl" in finding.summary for finding in findings)


def test_unreadable_state_is_unknown() -> None:
    machine = Machine()
    machine.card("mlx5_0", "0000:10:00.0", state="")
    assert statuses(judged("rdma-port", machine)) == ["unknown"]


def test_a_port_that_is_switched_off_is_named_as_it_is_typed() -> None:
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / "port-down-admin.tar.gz")), "a"), probes.sources(["rdma-port"]))
    (finding,) = graver(check(Snapshot({"a": node}), probes.chosen(["rdma-port"])))
    assert finding.remedy == "the port is switched off: ip link set veth0 up"
    one = Machine().card("mlx5_0", "0000:10:00.0").card("mlx5_1", "0000:20:00.0", state="1: DOWN", phys="3: Disabled")
    (finding,) = graver(judged("rdma-port", one))
    assert (finding.remedy or "").startswith("the port is switched off: ibportstate -C mlx5_1 ")
    assert (finding.remedy or "").endswith(" 1 enable")


@pytest.mark.parametrize(("state", "words"), [("2: INIT", "has configured it"), ("3: ARMED", "has not activated it")])
def test_a_link_that_waits_for_its_subnet_manager(state: str, words: str) -> None:
    (finding,) = graver(judged("rdma-port", Machine().card("mlx5_0", "0000:10:00.0", state=state)))
    assert finding.status.value == "fail" and words in finding.summary and "subnet manager" in (finding.remedy or "")


def test_a_roce_port_whose_link_is_up_needs_no_other_cable() -> None:
    machine = Machine().card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", state="2: INIT")
    (finding,) = graver(judged("rdma-port", machine))
    assert "eth2" in (finding.remedy or "") and "cable" not in (finding.remedy or "")


def test_iwarp_is_no_roce() -> None:
    machine = Machine().card("irdma0", "0000:10:00.0", layer="Ethernet", netdev="eth2")
    machine.file("/sys/devices/pci0000:10/0000:10:00.0/infiniband/irdma0/node_type", "4: RNIC")
    (finding,) = graver(judged("rdma-port", machine))
    assert finding.cause == "ib-qp-setup-failed" and "enable_roce" in (finding.remedy or "")


def test_a_link_layer_or_ports_that_cannot_be_read_are_unknown() -> None:
    assert statuses(judged("rdma-port", Machine().card("mlx5_0", "0000:10:00.0", layer=""))) == ["unknown"]
    bare = Machine().file("/sys/devices/mlx5_0/node_type", "1: CA")
    bare.tree.add_link("/sys/class/infiniband/mlx5_0", "/sys/devices/mlx5_0")
    (finding,) = judged("rdma-port", bare)
    assert finding.status.value == "unknown" and "mlx5_0" in finding.summary


def test_a_virtual_function_that_nobody_uses() -> None:
    machine = (
        Machine().card("mlx5_0", "0000:10:00.0").card("mlx5_1", "0000:10:00.1", state="1: DOWN", phys="3: Disabled")
    )
    folder = machine.tree.links["/sys/bus/pci/devices/0000:10:00.1"]
    machine.tree.add_link(f"{folder}/physfn", machine.tree.links["/sys/bus/pci/devices/0000:10:00.0"])
    assert statuses(judged("rdma-port", machine)) == ["ok", "skip"]
