from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.probes.rdma_mtu import from_netdev, parse_devinfo
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses

TREES = Path(__file__).parent.parent / "trees"


@pytest.mark.parametrize(
    ("mtu", "active"), [(9000, 4096), (4192, 4096), (4191, 2048), (2144, 2048), (1500, 1024), (1280, 1024), (300, None)]
)
def test_what_an_interface_gives(mtu: int, active: int | None) -> None:
    assert from_netdev(mtu) == active


@pytest.mark.parametrize(
    ("tree", "expected"),
    [("mtu-mismatch", ["warn"]), ("healthy-rocev2-gid3-empty", ["ok"]), ("no-rdma-device", ["skip"])],
)
def test_captured_machines(tree: str, expected: list[str]) -> None:
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / f"{tree}.tar.gz")), tree), probes.sources(["rdma-mtu"]))
    assert statuses(check(Snapshot({tree: node}), probes.chosen(["rdma-mtu"]))) == expected


def roce(name: str, mtu: int) -> Machine:
    return Machine(name).card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", mtu=mtu)


def test_the_odd_node() -> None:
    findings = judged("rdma-mtu", roce("a", 9000), roce("b", 9000), roce("c", 1500))
    (finding,) = graver(findings)
    assert finding.where["node"] == "c" and "1024 (eth2 has 1500), the other ports 4096" in finding.summary


def test_infiniband_without_the_tool_is_unknown() -> None:
    assert statuses(judged("rdma-mtu", eight_rails())) == ["unknown"]


def test_infiniband_with_the_tool() -> None:
    text = "".join(
        f"hca_id:\tmlx5_{i}\n\t\tport:\t1\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n"
        for i in range(8)
    )
    assert parse_devinfo(text)["mlx5_7:1"] == 4096
    assert statuses(judged("rdma-mtu", eight_rails().command("ibv_devinfo -v", text))) == ["ok"]


def test_the_remedy_names_the_interface_and_the_mtu_of_the_others() -> None:
    nodes = [Machine(name) for name in "abc"]
    for node in nodes:
        node.card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", mtu=9000 if node is nodes[1] else 1500)
    (finding,) = graver(judged("rdma-mtu", *nodes))
    assert finding.where["node"] == "b" and "ip link set eth2 mtu 1500 on b" in (finding.remedy or "")
    assert "-s 1472" in (finding.remedy or "")
