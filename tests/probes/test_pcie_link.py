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
from tests.probes.machines import Machine, configuration, eight_rails, graver, judged, statuses

TREES = Path(__file__).parent.parent / "trees"


def with_odd(card: dict[str, Any] | None = None, gpu: dict[str, Any] | None = None, name: str = "node1") -> Machine:
    machine = eight_rails(name, without=[5])
    parents = ["0000:24:01.0", "0000:25:00.0", "0000:26:01.0"]
    machine.card("mlx5_5", "0000:27:01.0", parents, **(card or {}))
    if gpu:
        machine.gpu("0000:2f:00.0", parents, **gpu)
    return machine


def test_full_width() -> None:
    (finding,) = judged("pcie-link", eight_rails())
    assert finding.summary == "16 PCIe links as wide as card and slot allow"


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"width": 8}, "Gen5 x8, card and slot can do Gen5 x16"),
        ({"speed": 8.0, "max_speed": 32.0}, "Gen3 x16, card and slot can do Gen5 x16"),
        ({"width": 8, "max_width": 8}, "400 Gb/s of ports on PCIe Gen5 x8"),
    ],
)
def test_cards(card: dict[str, Any], words: str) -> None:
    findings = graver(judged("pcie-link", with_odd(card)))
    assert any(words in finding.summary for finding in findings), findings
    assert {finding.cause for finding in findings} == {"pcie-degraded"}


def test_gpu_by_width_and_not_by_its_idle_speed() -> None:
    assert not graver(judged("pcie-link", with_odd(gpu={"speed": 2.5, "max_speed": 32.0})))
    (finding,) = graver(judged("pcie-link", with_odd(gpu={"width": 4})))
    assert "GPU 0000:2f:00.0: PCIe Gen5 x4" in finding.summary


def test_slot_that_can_do_less_than_its_equals() -> None:
    findings = graver(judged("pcie-link", with_odd(gpu={"width": 8, "max_width": 8})))
    assert "other cards of that model have x16" in findings[0].summary


def test_errors_of_the_link() -> None:
    machine = eight_rails()
    base = machine.tree.links["/sys/bus/pci/devices/0000:27:01.0"]
    machine.file(f"{base}/aer_dev_correctable", "RxErr 4000\nBadTLP 12\nTOTAL_ERR_COR 4012\n")
    assert "4012 corrected" in graver(judged("pcie-link", machine))[0].summary
    machine.file(f"{base}/aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 1\n")
    assert "1 uncorrected" in graver(judged("pcie-link", machine))[0].summary


def test_captured_switches() -> None:
    probes = load()
    node = collect(Recorded(open_tree(str(TREES / "pci-switches-numa-8rail.tar.gz"))), probes.sources(["pcie-link"]))
    assert statuses(check(Snapshot({"a": node}), probes.chosen(["pcie-link"]))) == ["ok"]


def test_nothing_told() -> None:
    assert statuses(judged("pcie-link", Machine())) == ["skip"]
    virtual = Machine()
    virtual.function("0000:00:03.0", pci_class="0x020000", width=0, max_width=0)
    assert statuses(judged("pcie-link", virtual)) == ["skip"]
    virtual.gpu("0000:00:04.0", width=0, max_width=0)
    assert statuses(judged("pcie-link", virtual)) == ["unknown"]


def ordered(name: str, *on: bool) -> Machine:
    """Cards with a PCI Express capability at 0x40; `on`: relaxed ordering of each."""
    machine = Machine(name)
    for number, enabled in enumerate(on):
        machine.card(f"mlx5_{number}", f"0000:1{number}:00.0")
        space = bytearray(configuration(-1))
        space[0x34], space[0x40], space[0x48] = 0x40, 0x10, 0x10 if enabled else 0
        machine.bytes(machine.function(f"0000:1{number}:00.0", pci_class="0x020700") + "/config", bytes(space))
    return machine


def test_relaxed_ordering_off_on_one_card() -> None:
    (finding,) = graver(judged("pcie-link", ordered("a", True, True), ordered("b", True, False)))
    assert finding.where == {"node": "b", "device": "0000:11:00.0"} and "relaxed ordering is off" in finding.summary


def test_relaxed_ordering_off_everywhere_or_unread_is_no_fault() -> None:
    assert not graver(judged("pcie-link", ordered("a", False, False)))
    unread = Machine().card("mlx5_0", "0000:10:00.0", acs=None)
    assert not graver(judged("pcie-link", unread, ordered("b", True)))


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("0000:13:00.0", "gpu-hardware-fault"),
        ("0000:13:01.0", "ib-link-or-hca-fault"),
        ("0000:12:00.0", "pcie-degraded"),
    ],
)
def test_what_fell_off_the_bus(address: str, cause: str) -> None:
    """As sysfs shows it: what the kernel read at the start stays, the configuration space is ones."""
    machine = eight_rails()
    folder = machine.tree.links[f"/sys/bus/pci/devices/{address}"]
    machine.bytes(f"{folder}/config", b"\xff" * 64)
    (finding,) = [one for one in graver(judged("pcie-link", machine)) if one.status.value == "fail"]
    assert (finding.cause, finding.where["device"]) == (cause, address) and "fallen off the bus" in finding.summary
    machine.file(f"{folder}/power_state", "D3cold\n")
    assert not [one for one in judged("pcie-link", machine) if one.status.value == "fail"]
