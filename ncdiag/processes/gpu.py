"""What each process holds of each GPU, and how busy those GPUs are, by NVML (`pynvml`, from nvidia-ml-py)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class GpuLook:
    """One look at all GPUs. `error` says why there are none."""

    processes: dict[int, dict[int, int]] = field(default_factory=dict)
    """pid (as NVML has it: of the outermost pid namespace) -> GPU index -> bytes held."""
    devices: dict[int, dict[str, Any]] = field(default_factory=dict)
    """GPU index -> `name`, `utilisation_percent`, `memory_used_bytes`, `memory_total_bytes`, `power_w`."""
    error: str | None = None


def look(nvml: Any = None) -> GpuLook:
    """Asks NVML. `nvml`: the module to ask; pynvml when None."""
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            return GpuLook(error="nvidia-ml-py is not installed; run: pip install nvidia-ml-py")
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return GpuLook(error=f"no GPU can be asked (NVML: {error})")
    try:
        found = GpuLook()
        for index in range(nvml.nvmlDeviceGetCount()):
            _device(nvml, index, found)
        return found
    except nvml.NVMLError as error:
        return GpuLook(error=f"NVML: {error}")
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Any, index: int, found: GpuLook) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    facts: dict[str, Any] = {}
    _try(nvml, facts, "name", lambda: nvml.nvmlDeviceGetName(handle))
    _try(nvml, facts, "utilisation_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    _try(nvml, facts, "memory_used_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
    _try(nvml, facts, "memory_total_bytes", lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    _try(nvml, facts, "power_w", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    found.devices[index] = facts
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return
    for process in running:
        found.processes.setdefault(process.pid, {})[index] = process.usedGpuMemory or 0


def _try(nvml: Any, facts: dict[str, Any], name: str, question: Any) -> None:
    """A device that lacks one number (MIG, vGPU, unified memory) still has the others."""
    try:
        value = question()
    except nvml.NVMLError:
        return
    facts[name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def of_process(found: GpuLook, pid: int) -> dict[str, Any]:
    """What one process holds: `indices`, `memory_bytes`, and of its GPUs `utilisation_percent` (highest), `power_w`."""
    held = found.processes.get(pid)
    if not held:
        return {}
    devices = [found.devices.get(index, {}) for index in held]
    return {
        "indices": sorted(held),
        "memory_bytes": sum(held.values()),
        "utilisation_percent": max((device.get("utilisation_percent") or 0 for device in devices), default=None),
        "power_w": max((device.get("power_w") or 0.0 for device in devices), default=None),
    }
