from __future__ import annotations

from typing import Any

from tests.probes.machines import Machine, eight_rails, graver, judged, statuses
from tests.probes.smi import addresses, with_gpus

CLUSTER = {"cluster": "a1b2c3d4-0000-0000-0000-000000000001", "clique": "32766"}


def machine(name: str = "node1", **changes: Any) -> Machine:
    return with_gpus(eight_rails(name), addresses(), **changes)


def test_complete() -> None:
    (finding,) = judged("nvlink-fabric", machine())
    assert finding.summary == "NVLink: 8 GPUs with 18 links, all active, no errors"


def test_missing_links_and_errors() -> None:
    (finding,) = graver(judged("nvlink-fabric", machine(dark={3: [4, 5]})))
    assert "16 NVLinks active, 18 on the others; inactive: 4, 5" in finding.summary
    (finding,) = graver(judged("nvlink-fabric", machine(errors={1: 12})))
    assert "12 NVLink replay" in finding.summary


def test_fabric_that_is_not_up() -> None:
    findings = graver(judged("nvlink-fabric", machine(fabric=("In Progress", "N/A"))))
    assert [(finding.status.value, finding.cause) for finding in findings] == [("fail", "fabric-manager-not-running")]
    findings = graver(judged("nvlink-fabric", machine(odd={3: {"fabric": ("Completed", "Unknown Error 3")}})))
    assert "on 1 of 8 GPUs" in findings[0].summary


def test_switches_without_a_manager() -> None:
    def node(*running: str) -> Machine:
        one = machine(fabric=("N/A", "N/A"))
        one.function("0000:c1:00.0", pci_class="0x068000", vendor="0x10de")
        for pid, title in enumerate(running, 1):
            one.file(f"/proc/{pid}/cmdline", title.replace(" ", "\0") + "\0")
        return one

    assert [finding.cause for finding in graver(judged("nvlink-fabric", node("/sbin/init")))] == [
        "fabric-manager-not-running"
    ]
    assert not graver(judged("nvlink-fabric", node("/sbin/init", "/usr/bin/nv-fabricmanager -c x")))
    assert not graver(judged("nvlink-fabric", node())), "no process can be seen"
    assert not graver(judged("nvlink-fabric", node("/bin/sh").file("/.dockerenv", "")))


def test_no_nvlink_and_nothing_told() -> None:
    assert statuses(judged("nvlink-fabric", machine(links=0, fabric=("N/A", "N/A")))) == ["skip"]
    assert statuses(judged("nvlink-fabric", Machine())) == ["skip"]


def test_imex() -> None:
    findings = graver(judged("nvlink-fabric", machine("a", **CLUSTER), machine("b", **CLUSTER)))
    assert {(finding.status.value, finding.cause) for finding in findings} == {("fail", "imex-unavailable")}
    assert not graver(judged("nvlink-fabric", machine(**CLUSTER))), "one node needs none"

    def ready(name: str, **changes: Any) -> Machine:
        node = machine(name, **{**CLUSTER, **changes})
        node.tree.add_file("/dev/nvidia-caps-imex-channels/channel0", b"")
        return node

    assert not graver(judged("nvlink-fabric", ready("a"), ready("b")))
    findings = graver(judged("nvlink-fabric", ready("a"), ready("b"), ready("c", clique="1")))
    assert [finding.where["node"] for finding in findings] == ["c"]


def test_a_rack_has_its_fabric_manager_on_the_switch_trays() -> None:
    (finding,) = graver(
        judged(
            "nvlink-fabric",
            machine(odd={place: {"name": "NVIDIA GB200"} for place in range(8)}, fabric=("In Progress", "N/A")),
        )
    )
    assert finding.cause == "fabric-manager-not-running" and "switch trays" in (finding.remedy or "")
    assert "systemctl" not in (finding.remedy or "")
