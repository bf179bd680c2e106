from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Plan, Snapshot
from ncdiag.probes import roce_gid
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses

TREES = Path(__file__).parent.parent / "trees"
LINK = ("fe80::1", 2)


def roce(name: str = "node1", gids: tuple[tuple[str, int], ...] = (), **environ: str) -> Machine:
    machine = Machine(name).environ(**environ)
    return machine.card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", gids=gids)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("healthy-rocev2-gid3-empty", ["ok", "ok"]),
        ("gid3-populated", ["ok", "ok"]),
        ("vlan-gids", ["ok", "ok"]),
        ("ipv6-link-local-only", ["warn", "warn"]),
        ("port-down-admin", ["ok"]),
        ("vm-ipv6-before-ipv4", ["ok", "ok"]),
        ("vm-uneven", ["ok", "ok"]),
        ("vm-an-address-taken-away", ["ok", "ok"]),
        ("vm-ipv6-disabled", ["ok", "ok"]),
        ("vm-router-between", ["ok", "ok"]),
        ("no-rdma-device", ["skip"]),
    ],
)
def test_captured_machines(tree: str, expected: list[str]) -> None:
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz")), tree), probes.sources(["roce-gid"]))
    assert statuses(check(Snapshot({tree: node}), probes.chosen(["roce-gid"]))) == expected


def test_the_usual_table() -> None:
    (finding,) = judged("roce-gid", roce())
    assert "finds index 3 (192.0.2.1 RoCE v2 on eth2)" in finding.summary


def test_copied_index_3_on_a_table_without_it() -> None:
    (finding,) = graver(judged("roce-gid", roce(gids=(LINK, ("::ffff:192.0.2.1", 2)), NCCL_IB_GID_INDEX="3")))
    assert (finding.status.value, finding.cause) == ("fail", "roce-gid-wrong")
    assert finding.expected["index"] == 1 and "unset NCCL_IB_GID_INDEX" in (finding.remedy or "")


def test_v1_index_is_a_warning() -> None:
    (finding,) = graver(judged("roce-gid", roce(NCCL_IB_GID_INDEX="2")))
    assert "RoCE v1" in finding.summary


def test_old_nccl_takes_index_0() -> None:
    (finding,) = graver(judged("roce-gid", roce(), plan=Plan(nccl_version="2.18.3")))
    assert "NCCL 2.18.3 takes by default index 0" in finding.summary


def test_no_address_at_all() -> None:
    (finding,) = graver(judged("roce-gid", roce(gids=(LINK,))))
    assert "IPv4 address" in (finding.remedy or "")


def test_other_family_on_the_other_node() -> None:
    findings = graver(judged("roce-gid", roce("a"), roce("b"), roce("c", gids=(LINK,))))
    assert any(finding.status.value == "fail" and finding.where == {"node": "c"} for finding in findings)


def test_one_number_for_tables_that_differ() -> None:
    short = roce("b", gids=(LINK, ("::ffff:192.0.2.2", 2)), NCCL_IB_GID_INDEX="3")
    findings = graver(judged("roce-gid", roce("a", NCCL_IB_GID_INDEX="3"), short))
    assert any("one number" in finding.summary for finding in findings)


def test_infiniband_has_no_roce_gid() -> None:
    assert statuses(judged("roce-gid", eight_rails())) == ["skip"]


def test_deselected_ports_do_not_matter() -> None:
    assert statuses(judged("roce-gid", roce(gids=(LINK,), NCCL_IB_HCA="mlx4"))) == ["skip"]


def test_a_table_that_moves() -> None:
    """The second look finds the first address gone and another behind it."""
    before = roce(gids=(LINK, ("::ffff:192.0.2.1", 2)))
    after = roce(gids=(LINK, ("::ffff:192.0.2.9", 2), ("::ffff:192.0.2.1", 2)))
    before.file(before.tree.links["/sys/class/infiniband/mlx5_0"] + "/ports/1/gids/2", "::")
    node = collect(before.host(), load().sources(["roce-gid"]))
    (table,) = node.facts["roce-gid"]
    assert table["changed"] == []
    table["changed"] = roce_gid._changed(after.host(), table)
    assert table["changed"] == [1, 2]
    (finding,) = graver(check(Snapshot({"node1": node}), load().chosen(["roce-gid"])))
    assert finding.summary == "mlx5_0:1: index 1, 2 of the GID table changed within 0.5 s"


@pytest.mark.parametrize(
    ("tree", "indexes"),
    [
        ("vm-ipv6-before-ipv4", [2, 2]),
        ("vm-uneven", [2, 1]),
        ("vm-an-address-taken-away", [2, 2]),
        ("vm-ipv6-disabled", [1, 1]),
    ],
)
def test_indexes_that_carried_a_connection(tree: str, indexes: list[int]) -> None:
    """Recorded by tests/lab/test_soft_roce.py, where ibv_rc_pingpong works with these and not with others."""
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz")), tree), probes.sources(["roce-gid"]))
    assert [finding.observed for finding in check(Snapshot({tree: node}), probes.chosen(["roce-gid"]))] == indexes


PORT = "/sys/devices/pci0000:10/0000:10:00.0/infiniband/mlx5_0/ports/1"


def without(machine: Machine, folder: str) -> Machine:
    for path in [path for path in machine.tree.files if path.startswith(folder)]:
        del machine.tree.files[path]
    for path in [path for path in machine.tree.folders if path.startswith(folder)]:
        del machine.tree.folders[path]
    machine.tree.folders[folder.rpartition("/")[0]].pop(folder.rpartition("/")[2], None)
    return machine


@pytest.mark.parametrize("folder", ["gids", "gid_attrs/types"])
def test_a_table_that_is_not_there_is_not_empty(folder: str) -> None:
    (finding,) = judged("roce-gid", without(roce(), f"{PORT}/{folder}"))
    assert finding.status.value == "unknown" and "cannot be read" in finding.summary


def test_slots_that_may_not_be_read_are_not_empty() -> None:
    machine = roce()
    machine.meta["errors"] = {path: 13 for path in machine.tree.files if path.startswith(f"{PORT}/gids/")}
    (finding,) = judged("roce-gid", machine)
    assert finding.status.value == "unknown" and "4 of 4 slots" in finding.summary


def test_types_that_were_not_read_make_no_other_family() -> None:
    found = judged("roce-gid", roce("a"), without(roce("b"), f"{PORT}/gid_attrs/types"))
    assert statuses(found) == ["ok", "unknown"]


def test_a_port_without_address_on_every_node_is_no_difference_between_them() -> None:
    nodes = [roce(name).card("mlx5_1", "0000:11:00.0", layer="Ethernet", netdev="eth3", gids=(LINK,)) for name in "ab"]
    found = graver(judged("roce-gid", *nodes))
    assert [finding.where["device"] for finding in found] == ["mlx5_1", "mlx5_1"]
    assert all("NCCL_IB_HCA=^=mlx5_1" in (finding.remedy or "") for finding in found)
    nodes[1] = roce("b").card(
        "mlx5_1", "0000:11:00.0", layer="Ethernet", netdev="eth3", gids=(("::ffff:192.0.2.9", 2),)
    )
    assert "fail" in statuses(judged("roce-gid", *nodes))


def test_a_link_local_index_where_ipv6_is_off() -> None:
    """Captured there: the index is listed, and a queue pair with it does not come up."""
    machine = roce(gids=(LINK, ("::ffff:192.0.2.1", 2)), NCCL_IB_GID_INDEX="0").file("/proc/net/if_inet6", "")
    (finding,) = graver(judged("roce-gid", machine))
    assert finding.status.value == "fail" and "eth2 has no such address" in finding.summary
    held = "fe800000000000000000000000000001 03 40 20 80 eth2\n"
    (finding,) = graver(judged("roce-gid", machine.file("/proc/net/if_inet6", held)))
    assert finding.status.value == "warn" and "no such address" not in finding.summary


@pytest.mark.parametrize("setting", ["NCCL_IB_ADDR_FAMILY=AF_INET6", "NCCL_IB_ADDR_RANGE=198.51.100.0/24"])
def test_the_setting_that_leads_the_search_away_is_named(setting: str) -> None:
    name, _, value = setting.partition("=")
    (finding,) = graver(judged("roce-gid", roce(gids=(LINK, ("::ffff:192.0.2.1", 2)), **{name: value})))
    assert f"unset {name}" in (finding.remedy or "") and "index 1" in (finding.remedy or "")
