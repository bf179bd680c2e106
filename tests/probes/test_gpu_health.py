from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from ncdiag.model import NodeFacts, Plan, Snapshot
from ncdiag.probes import gpu_health
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses
from tests.probes.smi import addresses, with_gpus


def machine(name: str = "node1", **changes: Any) -> Machine:
    return with_gpus(eight_rails(name), addresses(), **changes)


def test_healthy() -> None:
    (finding,) = judged("gpu-health", machine())
    assert finding.summary == "8 x NVIDIA H100 80GB HBM3, driver 570.86.15"


@pytest.mark.parametrize(
    ("odd", "status", "cause", "words"),
    [
        ({"volatile": 2}, "fail", "gpu-hardware-fault", "2 uncorrected memory errors"),
        ({"pending": "Yes"}, "warn", "gpu-ecc-row-remap", "row remap is pending"),
        ({"failure": "Yes"}, "fail", "gpu-hardware-fault", "could not be remapped"),
        ({"recovery": "GPU Reset"}, "fail", "gpu-hardware-fault", "GPU Reset"),
        ({"mode": "Prohibited"}, "fail", "gpu-memory-occupied", "Prohibited"),
        ({"mig": "Enabled"}, "warn", "visible-devices-conflict", "MIG is on"),
        ({"used": 60000, "processes": ((4711, "python", 59990),)}, "warn", "gpu-memory-occupied", "4711 python"),
        ({"ecc": "Disabled"}, "warn", "gpu-hardware-fault", "ECC is off"),
    ],
)
def test_one_gpu_in_trouble(odd: dict[str, Any], status: str, cause: str, words: str) -> None:
    (finding,) = graver(judged("gpu-health", machine(odd={3: odd})))
    assert (finding.status.value, finding.cause) == (status, cause)
    assert words in finding.summary and finding.where["device"] == "0000:1f:00.0"


def test_driverless_node() -> None:
    node = Machine()
    node.gpu("0000:13:00.0", driver=None)
    (finding,) = graver(judged("gpu-health", node))
    assert (finding.status.value, finding.cause) == (
        "fail",
        "driver-library-missing",
    ) and "no driver is loaded" in finding.summary


def test_driver_that_cannot_be_asked() -> None:
    node = eight_rails().command("nvidia-smi -q -x", "Failed to initialize NVML: Driver/library version mismatch", 18)
    (finding,) = graver(judged("gpu-health", node))
    assert "version mismatch" in finding.summary


def test_no_gpu_is_no_fault() -> None:
    assert statuses(judged("gpu-health", Machine())) == ["skip"]


def test_fewer_than_on_the_bus_and_than_planned() -> None:
    node = with_gpus(eight_rails(), addresses(7))
    assert "1 of 8 GPUs of the PCI bus" in graver(judged("gpu-health", node))[0].summary
    found = graver(judged("gpu-health", with_gpus(eight_rails(), addresses(7)), plan=Plan(gpus_per_node=8)))
    assert any(finding.cause == "visible-devices-conflict" for finding in found)


def test_nodes_that_differ() -> None:
    findings = graver(judged("gpu-health", machine("a"), machine("b"), machine("c", driver="535.129.03")))
    assert [(finding.where["node"], finding.cause) for finding in findings] == [("c", "version-mismatch")]


def test_torch_newer_than_the_driver() -> None:
    facts: dict[str, Any] = {"gpus": {"gpus": [], "driver": "535.1", "cuda": "12.2", "hidden": [], "why": None}}
    for torch, count in (("2.9.0+cu130", 1), ("2.7.0+cu128", 0), ("2.7.0", 0)):
        snapshot = Snapshot({"a": NodeFacts("a", {**facts, "engine-versions": {"packages": {"torch": torch}}})})
        assert len(list(gpu_health._driver(snapshot, "a", facts["gpus"]))) == count


@pytest.mark.parametrize(
    ("tp", "pp", "count", "expected"), [(8, 2, 2, []), (8, 3, 2, ["fail"]), (16, 1, 1, ["fail"]), (None, None, 2, [])]
)
def test_gpus_of_all_nodes_against_the_plan(tp: int | None, pp: int | None, count: int, expected: list[str]) -> None:
    machines = [machine(f"node{number}") for number in range(count)]
    found = graver(judged("gpu-health", *machines, plan=Plan(tp=tp, pp=pp)))
    assert statuses(found) == expected
    assert all(finding.cause == "rank-layout-wrong" and "GPUs on" in finding.summary for finding in found)


def test_a_node_that_did_not_tell_is_not_counted_as_none() -> None:
    snapshot = Snapshot(
        {"a": NodeFacts("a", {"gpus": judged_facts()}), "b": NodeFacts("b", unreachable="timed out")}, Plan(tp=16)
    )
    assert not [finding for finding in gpu_health.judge(snapshot) if "ranks" in finding.summary]


def judged_facts() -> Any:
    from tests.probes.judged import collected

    return collected("gpus", machine().host()).facts["gpus"]


def test_a_bus_that_was_not_read_is_not_one_without_gpus() -> None:
    node = Machine()
    node.meta["errors"] = {"/sys/bus/pci/devices": 13}
    found = judged("gpu-health", node)
    assert {finding.status.value for finding in found} == {"unknown"}


def rewritten(node: Machine, change: Callable[[str], str]) -> Machine:
    """`nvidia-smi -q -x` of the node, changed."""
    name = next(name for name, argv in node.meta["commands"].items() if argv == "nvidia-smi -q -x")
    return node.file(f"/cmd/{name}", change(node.tree.files[f"/cmd/{name}"].decode()))


@pytest.mark.parametrize("words", ["GPU is lost", "[GPU requires reset]"])
def test_a_gpu_that_answers_no_more_is_one_fault(words: str) -> None:
    def lost(text: str) -> str:
        head, one, *rest = re.split(r"(?=<gpu id)", text)
        return head + re.sub(r">([^<>\n]+)</(?!product_name|pci_bus_id)", f">{words}</", one) + "".join(rest)

    (finding,) = graver(judged("gpu-health", rewritten(machine(), lost)))
    assert (finding.status.value, finding.cause, finding.where["device"]) == (
        "fail",
        "gpu-hardware-fault",
        "0000:13:00.0",
    )
    assert words.strip("[]") in finding.summary
    assert not graver(judged("nvlink-fabric", rewritten(machine(), lost)))
    assert statuses(judged("gpu-clocks", rewritten(machine(), lost))) == ["unknown"]


def test_words_in_the_place_of_a_value_are_no_value() -> None:
    node = rewritten(machine(), lambda text: re.sub(r"(_ecc|_mode)>\w+</", r"\1>[Unknown Error]</", text))
    assert not graver(judged("gpu-health", node))


def test_a_warning_behind_the_answer_does_not_take_it_away() -> None:
    node = rewritten(machine(), lambda text: text + "WARNING: infoROM is corrupted at gpu 0000:17:00.0\n")
    node.meta["exits"] = dict.fromkeys(node.meta["exits"], 14)
    assert statuses(judged("gpu-health", node)) == ["ok"]


@pytest.mark.parametrize(
    ("said", "cause", "words"),
    [
        ("Unable to determine the device handle for GPU0000:1B:00.0: Unknown Error", "gpu-hardware-fault", "Xid 79"),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver-library-missing", "reload"),
        ("Failed to initialize NVML: Unknown Error", "driver-library-missing", "start it anew"),
        ("No devices were found", "driver-library-missing", "RmInitAdapter"),
    ],
)
def test_why_nvidia_smi_tells_nothing(said: str, cause: str, words: str) -> None:
    (finding,) = graver(judged("gpu-health", eight_rails().command("nvidia-smi -q -x", said + "\n", 9)))
    assert finding.cause == cause and words in (finding.remedy or "")
