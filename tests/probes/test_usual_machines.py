"""Machines without what ncdiag looks for: every RDMA, GPU and PCIe probe skips with a reason, or says what is wrong; none calls it healthy."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.model import Finding, Snapshot
from tests.env.clusters import with_links
from tests.probes.machines import Machine, eight_rails
from tests.probes.smi import addresses, with_gpus

PROBES = registry.load()
CONCERNED = PROBES.chosen([name for name in PROBES if re.match(r"(rdma|roce|verbs|gpu|nvlink|pci|numa|acs)", name)])


def found(*machines: Machine) -> dict[str, set[str]]:
    """Probe -> its statuses over these machines; every `skip` and `unknown` has a reason."""
    snapshot = Snapshot()
    for machine in machines:
        node = collect(with_links(machine).host(), PROBES.sources(CONCERNED))
        assert not [why for why in node.errors.values() if "Error" in why.partition(":")[0]], node.errors
        snapshot.nodes[node.node] = node
    told: dict[str, set[str]] = {}
    findings: list[Finding] = check(snapshot, CONCERNED)
    for finding in findings:
        assert finding.summary, finding
        told.setdefault(finding.probe, set()).add(finding.status.value)
    return told


def server() -> Machine:
    """Two sockets, two network cards, no GPU."""
    machine = Machine("server").file("/proc/cpuinfo", "flags\t: fpu sse\n")
    for number in range(2):
        address = f"0000:{0x20 + number:02x}:00.0"
        base = machine.function(
            address, pci_class="0x020000", vendor="0x8086", driver="ice", numa=number, width=8, max_width=8
        )
        machine.file(f"{base}/net/eth{number}/mtu", "1500")
        machine.tree.add_link(f"/sys/class/net/eth{number}", f"{base}/net/eth{number}")
    return machine


def laptop() -> Machine:
    """Built-in graphics, one wireless card."""
    machine = Machine("laptop").file("/proc/cpuinfo", "flags\t: fpu vmx\n")
    machine.function("0000:00:02.0", pci_class="0x030000", vendor="0x8086", driver="i915")
    machine.function("0000:02:00.0", pci_class="0x028000", vendor="0x8086", driver="iwlwifi", width=1, max_width=1)
    return machine


def container() -> Machine:
    """Docker without devices: /sys/class has no infiniband, the kernel's modules are not shown."""
    machine = Machine("container").file("/proc/cpuinfo", "flags\t: fpu hypervisor\n").file("/.dockerenv", "")
    machine.tree.add_folder("/sys/class/net/eth0")
    return machine


@pytest.mark.parametrize("made", [server, laptop, container])
def test_nothing_there_is_nothing_wrong_and_nothing_healthy(made: Callable[[], Machine]) -> None:
    told = found(made())
    never = {probe: statuses for probe, statuses in told.items() if statuses & {"warn", "fail"}}
    assert not never, never
    for probe in ("rdma-port", "rdma-hca-selection", "rdma-mtu", "rdma-counters", "roce-gid", "roce-network", "roce-lossless", "roce-bond",
                  "verbs-access", "gpu-health", "gpu-clocks", "gpu-p2p", "nvlink-fabric", "gpudirect"):  # fmt: skip
        assert told[probe] <= {"skip"}, (probe, told[probe])


def test_one_of_eight_cards_down() -> None:
    told = found(with_gpus(eight_rails("a", down=[5]), addresses()), with_gpus(eight_rails("b"), addresses()))
    assert "fail" in told["rdma-port"] or "warn" in told["rdma-port"]
    assert told["gpu-health"] == {"ok"} and "fail" not in told["pcie-link"]


def test_a_port_down_on_every_node_is_unused() -> None:
    told = found(*(with_gpus(eight_rails(name, down=[7]), addresses()) for name in "ab"))
    assert not told["rdma-port"] & {"warn", "fail"}


def test_gpus_without_a_driver() -> None:
    machine = Machine("driverless")
    for number in range(8):
        gpu, nic = machine.switch(0x10 + 4 * number)
        machine.gpu(f"0000:{0x13 + 4 * number:02x}:00.0", gpu, driver=None)
        machine.card(f"mlx5_{number}", f"0000:{0x13 + 4 * number:02x}:01.0", nic)
    told = found(machine)
    assert told["gpu-health"] == {"fail"}
    for probe in ("gpu-clocks", "gpu-p2p", "nvlink-fabric", "gpu-xid", "gpudirect"):
        assert "ok" not in told[probe], (probe, told[probe])
    assert told["rdma-port"] == {"ok"}
