"""What `topology_check` says of machines, and of several together."""

from __future__ import annotations

from typing import Any

import pytest

from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import Settings
from ncdiag.nccl.topology_check import check_topology, compare_topologies
from ncdiag.nccl.topology_view import View, view
from ncdiag.nccl.topology_xml import parse_topology
from tests.nccl_topology import machines


def shown(xml: str) -> View:
    return view(parse_topology(xml), rules_for((2, 30, 7)), Settings())


def rail(i: int) -> str:
    return f"0000:{0x10 + 16 * i:02x}"


def nics(**odd: Any):
    return lambda i: machines.nic(f"{rail(i)}:01.0", i, **(odd if i == 5 else {}))


def gpus(**odd: Any):
    return lambda i: machines.gpu(f"{rail(i)}:00.0", i, **(odd if i == 5 else {}))


@pytest.mark.parametrize(
    ("xml", "status", "words"),
    [
        pytest.param(machines.eight_rails(), "ok", "8 GPUs and 8 NICs", id="eight-rails"),
        pytest.param(machines.grace(), "ok", "2 GPUs", id="grace"),
        pytest.param(machines.merged_nics(), "ok", "2 NICs", id="merged"),
        pytest.param(machines.one_gpu(), "ok", "1 GPU", id="one-gpu"),
        pytest.param(machines.no_nic(), "skip", "no network device", id="no-nic"),
        pytest.param(machines.flat_cloud(), "warn", "no NIC in a switch with any GPU", id="flat"),
        pytest.param(machines.other_socket(), "warn", "GPU 0: the nearest NIC is SYS away", id="other-socket"),
        pytest.param(
            machines.eight_rails(nic_of=nics(gdr=0)), "warn", "mlx5_5: GPUDirect no, the others yes", id="gdr-0"
        ),
        pytest.param(
            machines.eight_rails(nic_of=nics(speed=200000)),
            "warn",
            "mlx5_5: Gb/s 200.0, the others 400.0",
            id="slow-port",
        ),
        pytest.param(
            machines.eight_rails(nic_of=nics(width=8)), "warn", "mlx5_5: PCIe x8, the others x16", id="narrow-nic"
        ),
        pytest.param(
            machines.eight_rails(nic_of=nics(rate="16.0 GT/s PCIe")),
            "warn",
            "400 Gb/s of ports on Gen4 x16",
            id="slow-slot",
        ),
        pytest.param(
            machines.eight_rails(gpu_of=gpus(width=4)), "warn", "GPU 5: PCIe x4, the others x16", id="narrow-gpu"
        ),
        pytest.param(
            machines.eight_rails(gpu_of=gpus(nvlinks=17)), "warn", "GPU 5: NVLinks 17, the others 18", id="nvlink-lost"
        ),
        pytest.param(
            machines.eight_rails(nic_of=lambda i: "" if i == 5 else nics()(i)),
            "warn",
            "7 NICs for 8 GPUs",
            id="nic-missing",
        ),
        pytest.param('<?xml version="1.0"?>' + machines.one_gpu(), "warn", "would fail", id="header"),
    ],
)
def test_machines(xml, status, words):
    findings = list(check_topology(shown(xml), "n1"))
    assert any(finding.status.value == status and words in finding.summary for finding in findings), findings
    assert all(finding.where["node"] == "n1" for finding in findings)
    if status == "ok":
        assert len(findings) == 1


def test_idle_gpus_at_gen1_are_not_called_slow():
    """2.30.7 dumps a GPU's current generation, which power saving lowers."""
    idle = machines.eight_rails(gpu_of=lambda i: machines.gpu(f"{rail(i)}:00.0", i, speed="2.5 GT/s PCIe"))
    assert [finding.status.value for finding in check_topology(shown(idle), "n")] == ["ok"]
    one = list(check_topology(shown(machines.eight_rails(gpu_of=gpus(speed="2.5 GT/s PCIe"))), "n"))
    assert any("power saving if it was idle" in finding.summary for finding in one)


def test_equal_machines_are_not_remarked():
    assert not list(compare_topologies([("a", shown(machines.eight_rails())), ("b", shown(machines.eight_rails()))]))


def test_the_odd_machine_is_named():
    odd = shown(machines.eight_rails(nic_of=lambda i: "" if i == 5 else nics()(i)))
    same = shown(machines.eight_rails())
    findings = list(compare_topologies([("a", same), ("b", odd), ("c", same)]))
    assert {finding.where["node"] for finding in findings} == {"b"}
    assert any(finding.summary.startswith("NICs: 7 x 400 Gb/s, other nodes have 8 x 400 Gb/s") for finding in findings)
