"""What NVML tells, from a module that answers as pynvml does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ncdiag.processes import gpu


class NvmlError(Exception):
    pass


def module(**overrides: Any) -> SimpleNamespace:
    """Two GPUs; process 70 holds 2 GiB of the second."""
    running = {0: [], 1: [SimpleNamespace(pid=70, usedGpuMemory=2 << 30)]}
    answers = {
        "NVMLError": NvmlError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"H200",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=100 * handle),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=3 << 30, total=139 << 30),
        "nvmlDeviceGetPowerUsage": lambda handle: 120_000,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: running[handle],
    }
    return SimpleNamespace(**{**answers, **overrides})


def refuses(*_: object) -> None:
    raise NvmlError("Not Supported")


def test_what_a_process_holds() -> None:
    found = gpu.look(module())
    assert found.devices[0]["name"] == "H200"
    assert gpu.of_process(found, 70) == {
        "indices": [1],
        "memory_bytes": 2 << 30,
        "utilisation_percent": 100,
        "power_w": 120.0,
    }
    assert gpu.of_process(found, 71) == {}


def test_a_device_that_lacks_one_number_has_the_others() -> None:
    found = gpu.look(module(nvmlDeviceGetUtilizationRates=refuses, nvmlDeviceGetPowerUsage=refuses))
    assert "utilisation_percent" not in found.devices[1] and found.devices[1]["memory_used_bytes"] == 3 << 30


def test_no_driver_is_a_reason_not_a_crash() -> None:
    assert gpu.look(module(nvmlInit=refuses)).error == "no GPU can be asked (NVML: Not Supported)"
    assert gpu.look(module(nvmlDeviceGetCount=refuses)).error == "NVML: Not Supported"
