from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Snapshot
from ncdiag.registry import load
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, graver, judged, statuses

METAL = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vme\n"


def machine(acs: int | None = -1, group: int | None = None, kind: str = "", cpuinfo: str = METAL) -> Machine:
    one = Machine().file("/proc/cpuinfo", cpuinfo)
    gpu, nic = one.switch(0x10, acs=acs)
    one.gpu("0000:13:00.0", gpu, group=group).card("mlx5_0", "0000:13:01.0", nic, group=group)
    if group is not None:
        one.tree.add_folder("/sys/class/iommu/dmar0")
        if kind:
            one.file(f"/sys/kernel/iommu_groups/{group}/type", kind)
    return one


@pytest.mark.parametrize(
    ("acs", "expected"),
    [
        (-1, ["ok", "ok"]),
        (0x00, ["ok", "ok"]),
        (0x01, ["ok", "ok"]),
        (0x1D, ["ok", "warn"]),
        (0x04, ["ok", "warn"]),
        (None, ["ok", "unknown"]),
    ],
)
def test_acs(acs: int | None, expected: list[str]) -> None:
    findings = judged("acs-iommu", machine(acs))
    assert statuses(findings) == expected
    graver(findings)


@pytest.mark.parametrize(
    ("kind", "status"),
    [("identity", "ok"), ("DMA", "warn"), ("DMA-FQ", "warn"), ("", "unknown"), ("unmanaged", "unknown")],
)
def test_iommu(kind: str, status: str) -> None:
    findings = judged("acs-iommu", machine(group=7, kind=kind))
    assert statuses(findings) == sorted(["ok", status])
    graver(findings)


@pytest.mark.parametrize(
    ("options", "status"), [("intel_iommu=on", "warn"), ("intel_iommu=on iommu=pt", "ok"), ("quiet", "unknown")]
)
def test_iommu_by_the_command_line(options: str, status: str) -> None:
    findings = judged("acs-iommu", machine(group=7).file("/proc/cmdline", f"ro {options}"))
    assert statuses(findings) == sorted(["ok", status])


def test_virtual_and_arm_machines_are_not_judged() -> None:
    virtual = machine(0x1D, cpuinfo=METAL.replace("vme", "vme hypervisor"))
    assert statuses(judged("acs-iommu", virtual)) == ["skip"]
    assert statuses(judged("acs-iommu", machine(0x1D, cpuinfo="processor : 0\nCPU implementer : 0x41\n"))) == ["skip"]


def test_alone() -> None:
    assert statuses(judged("acs-iommu", Machine())) == ["skip"]
    laptop = Machine().file("/proc/cpuinfo", METAL).gpu("0000:01:00.0", group=1)
    laptop.function("0000:02:00.0", pci_class="0x020000", vendor="0x8086", group=2)
    assert statuses(judged("acs-iommu", laptop)) == ["skip"], "one GPU and a plain network card have no peer traffic"


def test_captured_switches_below_an_iommu() -> None:
    """QEMU with intel_iommu=on: redirect on the five root ports above cards, none on the switches; /proc/cpuinfo was not kept."""
    tree = Path(__file__).parent.parent / "trees" / "pci-switches-numa-iommu.tar.gz"
    probes = load()
    facts = collect(Recorded(open_tree(str(tree))), probes.sources(["acs-iommu"]))
    acs, iommu = check(Snapshot({"a": facts}), probes.chosen(["acs-iommu"]))
    assert set(acs.observed) == {f"0000:{port}" for port in ("20:00.0", "20:01.0", "50:00.0", "80:00.0", "80:01.0")}
    assert "if this is bare metal" in acs.summary and "DMA by the kernel command line" in iommu.summary
