from __future__ import annotations

from typing import Any

import pytest

from ncdiag.model import Plan
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses


def sixteen(**environ: str) -> Machine:
    machine = Machine().environ(**environ)
    for i in range(16):
        machine.card(f"mlx5_{i}", f"0000:{0x10 + i:02x}:00.0")
    return machine


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [
        ("=mlx5_1,mlx5_2", "ok", "NCCL takes mlx5_1:1, mlx5_2:1"),
        ("mlx5_1", "warn", "also takes mlx5_10"),
        ("mlx4", "fail", "leaves none of the usable ports"),
        ("^mlx5", "fail", "leaves none"),
        ("mlx5_1:2", "fail", "leaves none"),
        ("=mlx5_0,mlx5_99", "warn", "mlx5_99 matches no device"),
    ],
)
def test_values(value: str, status: str, words: str) -> None:
    findings = judged("rdma-hca-selection", sixteen(NCCL_IB_HCA=value))
    assert any(finding.status.value == status and words in finding.summary for finding in findings), findings
    graver(findings)


def test_not_set() -> None:
    (finding,) = judged("rdma-hca-selection", sixteen())
    assert finding.status.value == "ok" and "mlx5_15:1" in finding.summary


def test_left_over_disable() -> None:
    (finding,) = graver(judged("rdma-hca-selection", sixteen(NCCL_IB_DISABLE="1")))
    assert finding.cause == "net-fallback-slow"
    assert statuses(judged("rdma-hca-selection", sixteen(NCCL_IB_DISABLE="true"))) == ["ok"], "a word is 0 for NCCL"


def test_conf_files_count_after_the_environment() -> None:
    machine = (
        sixteen(HOME="/home/u")
        .file("/etc/nccl.conf", "#NCCL_IB_HCA=x\nNCCL_IB_HCA=mlx4\n")
        .file("/home/u/.nccl.conf", "NCCL_IB_HCA==mlx5_0\n")
    )
    (finding,) = judged("rdma-hca-selection", machine)
    assert finding.source.startswith("/home/u/.nccl.conf") and finding.observed == "mlx5_0:1"


def test_unknown_environment_is_not_called_unset() -> None:
    machine = sixteen()
    machine.meta["environ"] = None
    (finding,) = judged("rdma-hca-selection", machine)
    assert finding.status.value == "unknown" and "not known" in finding.summary


def test_unequal_sets() -> None:
    findings = graver(judged("rdma-hca-selection", eight_rails("a"), eight_rails("b"), eight_rails("c", without=[5])))
    assert [(finding.cause, finding.where["node"]) for finding in findings] == [("hca-mismatch-between-nodes", "c")]


def test_port_without_a_number_before_2_30_7() -> None:
    machine = sixteen(NCCL_IB_HCA="=mlx5_0:")
    assert statuses(judged("rdma-hca-selection", machine, plan=Plan(nccl_version="2.30.7"))) == ["ok"]
    assert "fail" in statuses(
        judged("rdma-hca-selection", sixteen(NCCL_IB_HCA="=mlx5_0:"), plan=Plan(nccl_version="2.27.3"))
    )


def test_nothing_to_select() -> None:
    assert statuses(judged("rdma-hca-selection", Machine())) == ["skip"]
    assert statuses(judged("rdma-hca-selection", eight_rails(down=range(8)))) == ["skip"]


def four(name: str, **card: Any) -> Machine:
    machine = Machine(name)
    for number in range(4):
        machine.card(f"mlx5_{number}", f"0000:1{number}:00.0", **card)
    return machine


def test_a_node_of_another_fabric() -> None:
    (finding,) = graver(judged("rdma-hca-selection", four("a"), four("b"), four("c", layer="Ethernet")))
    assert (finding.cause, finding.where["node"]) == ("mixed-hca-fabrics", "c") and "Ethernet" in finding.summary


def test_a_node_with_slower_cards_of_another_kind() -> None:
    slow = {"rate": "200 Gb/sec (4X HDR)", "board": "MT_0000000223"}
    (finding,) = graver(judged("rdma-hca-selection", four("a"), four("b"), four("c", **slow)))
    assert (finding.status.value, finding.where["node"]) == ("warn", "c") and "200 Gb/s here" in finding.summary
    assert not graver(judged("rdma-hca-selection", four("a"), four("b"), four("c", board="DEL0000000036")))
