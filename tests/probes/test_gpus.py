from __future__ import annotations

import pytest

from ncdiag.host import Host
from ncdiag.nccl.smi import normal_address
from ncdiag.probes.gpus import collect
from tests.probes.machines import Machine, eight_rails
from tests.probes.smi import addresses, with_gpus


def test_what_the_driver_tells() -> None:
    machine = with_gpus(eight_rails(), addresses(), odd={2: {"volatile": 3, "throttle": ("hw_slowdown",), "processes": ((77, "python", 900),)}},
                        dark={3: [4, 5]}, errors={1: 9})  # fmt: skip
    facts = collect(machine.host())
    assert (facts["driver"], facts["cuda"], facts["open_modules"], facts["why"]) == ("570.86.15", "12.8", True, None)
    gpu = facts["gpus"][2]
    assert (gpu["index"], gpu["busid"], gpu["sm"], gpu["memory_total_mib"]) == (2, "0000:1b:00.0", 90, 81559)
    assert (gpu["ecc_uncorrected"], gpu["throttle"], gpu["persistence"], gpu["mig"]) == (
        3,
        ["hw_slowdown"],
        True,
        False,
    )
    assert gpu["processes"] == [{"pid": 77, "name": "python", "memory_mib": 900}]
    links = [sum(link["active"] for link in one["nvlinks"] or []) for one in facts["gpus"]]
    assert links == [18, 18, 18, 16, 18, 18, 18, 18]
    assert [sum(link["errors"] for link in one["nvlinks"] or []) for one in facts["gpus"]][:2] == [0, 9]


@pytest.mark.parametrize(
    ("output", "rc", "words"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "couldn't communicate"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "mismatch"),
        ("<nvidia_smi_log><gpu", 0, "nvidia-smi -q -x"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log/>', 0, "not what the driver writes"),
        ("", 1, "exit status 1"),
    ],
)
def test_why_not(output: str, rc: int, words: str) -> None:
    facts = collect(Machine().driver().command("nvidia-smi -q -x", output, rc).host())
    assert not facts["gpus"] and words in (facts["why"] or "") and facts["driver"] == "570.86.15"


def test_addresses() -> None:
    assert normal_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert normal_address("00010001:00:00.0") == "00010001:00:00.0"


def test_gpu_that_only_the_driver_knows() -> None:
    machine = with_gpus(Machine().driver(), ["0000:13:00.0"]).file(
        "/proc/driver/nvidia/gpus/0000:17:00.0/information", "x"
    )
    machine.file("/proc/driver/nvidia/gpus/0000:13:00.0/information", "x")
    assert collect(machine.host())["hidden"] == ["0000:17:00.0"]


def test_this_machine() -> None:
    assert isinstance(collect(Host())["gpus"], list)
