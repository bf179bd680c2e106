from __future__ import annotations

import pytest

from ncdiag.model import Plan
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses
from tests.probes.smi import addresses, with_gpus


def machine(open_modules: bool = True, peermem: bool = False) -> Machine:
    return with_gpus(eight_rails().driver(open_modules=open_modules, peermem=peermem), addresses())


def test_dma_buf_with_the_open_modules() -> None:
    (finding,) = judged("gpudirect", machine())
    assert finding.summary == "GPUDirect RDMA by DMA-BUF, between every GPU and its cards"


@pytest.mark.parametrize(
    ("open_modules", "peermem", "kernel", "status"),
    [
        (True, False, "6.8.0", "ok"),
        (False, True, "5.4.0", "ok"),
        (False, False, "6.8.0", "warn"),
        (True, False, "5.4.0", "warn"),
    ],
)
def test_ways(open_modules: bool, peermem: bool, kernel: str, status: str) -> None:
    node = machine(open_modules=open_modules, peermem=peermem)
    node.tree.files["/proc/version"] = f"Linux version {kernel}-1 (x)".encode()
    findings = judged("gpudirect", node)
    assert statuses(findings) == [status]
    graver(findings)


def test_kernel_built_without_it() -> None:
    node = machine().file("/boot/config-6.8.0-45-generic", "CONFIG_PCI=y\n# CONFIG_PCI_P2PDMA is not set\n")
    assert "built without" in graver(judged("gpudirect", node))[0].summary


def test_switched_off_by_a_variable() -> None:
    assert "NCCL_DMABUF_ENABLE=0" in graver(judged("gpudirect", machine().environ(NCCL_DMABUF_ENABLE="0")))[0].summary


def flat(**environ: str) -> Machine:
    node = Machine().driver().environ(**environ)
    node.gpu("0000:05:00.0", ["0000:00:01.0"]).card("mlx5_0", "0000:06:00.0", ["0000:00:02.0"])
    for root in ("0000:00:01.0", "0000:00:02.0"):
        node.function(root, [], pci_class="0x060400", vendor="0x8086")
    return with_gpus(node, ["0000:05:00.0"])


def test_distance_and_level() -> None:
    (finding,) = graver(judged("gpudirect", flat()))
    assert "distance PHB is farther than" in finding.summary and finding.cause == "gdr-disabled"
    assert statuses(judged("gpudirect", flat(NCCL_NET_GDR_LEVEL="PHB"))) == ["ok"]
    assert statuses(judged("gpudirect", flat(NCCL_NET_GDR_LEVEL="phb"))) == ["warn"], "NCCL ignores small letters"
    assert statuses(judged("gpudirect", flat(), plan=Plan(nccl_version="2.18.3"))) == ["warn"]


def test_where_it_does_not_apply() -> None:
    assert statuses(judged("gpudirect", Machine())) == ["skip"]
    assert statuses(judged("gpudirect", Machine().driver())) == ["skip"]


def test_efa_has_a_way_of_its_own() -> None:
    node = with_gpus(Machine().driver(open_modules=False), ["0000:13:00.0"])
    node.gpu("0000:13:00.0", numa=0)
    node.card("rdmap0s31", "0000:14:00.0", layer="Unspecified", board="", driver="efa", vendor="0x1d0f")
    (finding,) = judged("gpudirect", node)
    assert finding.status.value == "skip" and "EFA" in finding.summary
