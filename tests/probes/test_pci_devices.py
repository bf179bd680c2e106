from __future__ import annotations

from pathlib import Path

from ncdiag.host import Host, Recorded
from ncdiag.probes.pci_devices import collect
from ncdiag.tree import open_tree
from tests.probes.machines import Machine, eight_rails

TREES = Path(__file__).parent.parent / "trees"


def test_captured_switches() -> None:
    functions = collect(Recorded(open_tree(str(TREES / "pci-switches-numa-8rail.tar.gz"))))["functions"]
    assert functions["0000:24:00.0"]["parents"] == ["0000:20:00.0", "0000:21:00.0", "0000:22:01.0"]
    assert [functions[a]["kind"] for a in ("0000:24:00.0", "0000:23:00.0", "0000:20:00.0")] == ["gpu", "nic", "bridge"]
    assert functions["0000:23:00.0"]["netdevs"] == ["eth5"]
    assert functions["0000:20:00.0"]["max_gts"] == 16.0 and functions["0000:20:00.0"]["current_width"] == 1
    assert functions["0000:22:00.0"]["max_gts"] is None, "the kernel says Unknown there"
    assert {functions[a]["numa_node"] for a in ("0000:24:00.0", "0000:84:00.0")} == {0, 1}


def test_acs_word_and_what_needs_root() -> None:
    machine = Machine()
    for address, acs in (("0000:01:00.0", 0x1D), ("0000:02:00.0", -1), ("0000:03:00.0", None)):
        machine.function(address, pci_class="0x020000", acs=acs)
    functions = collect(machine.host())["functions"]
    assert [functions[f"0000:0{i}:00.0"]["acs"] for i in (1, 2, 3)] == [0x1D, -1, None]


def test_a_looping_capability_chain_ends() -> None:
    machine = Machine()
    base = machine.function("0000:01:00.0", pci_class="0x020000")
    machine.bytes(f"{base}/config", bytes(0x100) + (0x10001 | 0x100 << 20).to_bytes(4, "little") * 64)
    assert collect(machine.host())["functions"]["0000:01:00.0"]["acs"] == -1


def test_what_is_a_gpu() -> None:
    machine = Machine()
    for address, pci_class, vendor in (
        ("0000:01:00.0", "0x030000", "0x10de"),
        ("0000:02:00.0", "0x030000", "0x1a03"),
        ("0000:03:00.0", "0x120000", "0x1002"),
        ("0000:04:00.0", "0x068000", "0x10de"),
        ("0000:05:00.0", "0x010802", "0x144d"),
    ):
        machine.function(address, pci_class=pci_class, vendor=vendor)
    kinds = {address: one["kind"] for address, one in collect(machine.host())["functions"].items()}
    assert kinds == {"0000:01:00.0": "gpu", "0000:03:00.0": "gpu", "0000:04:00.0": "nvswitch"}


def test_eight_rails_and_this_machine() -> None:
    assert len([one for one in collect(eight_rails().host())["functions"].values() if one["kind"] == "gpu"]) == 8
    collect(Host())
