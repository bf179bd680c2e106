from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.nccl.ethtool import statistics
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses

PROTECTED = {"rx_prio3_pause": 0, "tx_prio3_pause": 5, "rx_prio0_packets": 10**9, "rx_prio3_packets": 10**9}
OPEN: dict[str, int] = {"rx_prio0_packets": 10**9}


def machine(name: str = "node1", told: dict[str, Any] | None = PROTECTED, **environ: str) -> Machine:
    one = Machine(name).environ(**environ).card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2")
    if told is not None:
        one.meta["answers"]["ethtool statistics of eth2"] = told
    return one


@pytest.mark.parametrize(
    ("told", "environ", "status"),
    [
        (PROTECTED, {"NCCL_IB_TC": "104"}, "ok"),
        (PROTECTED, {}, "warn"),
        (OPEN, {}, "ok"),
        ({**OPEN, "rx_discards_phy": 5000}, {}, "warn"),
        ({**OPEN, "rx_discards_phy": 5}, {}, "ok"),
        ({**OPEN, "tx_pause_storm_error_events": 1}, {}, "warn"),
        (None, {}, "unknown"),
    ],
)
def test_one_node(told: dict[str, Any] | None, environ: dict[str, str], status: str) -> None:
    findings = judged("roce-lossless", machine(told=told, **environ))
    assert statuses(findings) == [status]
    graver(findings)


def test_class_forced_in_the_driver() -> None:
    one = machine()
    base = one.tree.links["/sys/class/infiniband/mlx5_0"]
    one.file(f"{base}/tc/1/traffic_class", "Global tclass=104\n")
    assert statuses(judged("roce-lossless", one)) == ["ok"]


def test_vendor_files_count() -> None:
    one = machine(told=OPEN)
    base = one.tree.links["/sys/class/net/eth2"]
    one.file(f"{base}/qos/pfc", "0 0 0 1 0 0 0 0\n")
    for side in ("roce_np", "roce_rp"):
        one.file(f"{base}/ecn/{side}/enable/3", "1\n")
    (finding,) = graver(judged("roce-lossless", one))
    assert "priority 3" in finding.summary


def test_nodes_that_differ() -> None:
    nodes = [machine(name, NCCL_IB_TC="104") for name in ("a", "b")] + [machine("c", told=OPEN, NCCL_IB_TC="104")]
    assert [finding.where["node"] for finding in graver(judged("roce-lossless", *nodes))] == ["c"]


def test_infiniband_needs_none_of_it() -> None:
    assert statuses(judged("roce-lossless", eight_rails())) == ["skip"]


def test_statistics_of_this_machine() -> None:
    assert statistics("lo") == {}
    with pytest.raises(OSError):
        statistics("nosuch0")


def test_software_devices_have_no_priorities() -> None:
    probes = registry.load()
    tree = Path(__file__).parent.parent / "trees" / "healthy-rocev2-gid3-empty.tar.gz"
    node = collect(Recorded(open_tree(str(tree))), probes.sources(["roce-lossless"]))
    assert statuses(check(Snapshot({"a": node}), probes.chosen(["roce-lossless"]))) == ["skip"]
