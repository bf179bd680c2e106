"""GPUs by NVML: clocks, what holds them down, power, memory, and Xid events.

A number that a device does not tell (MIG, vGPU, unified memory) is missing, never zero. Source: NVML reference
(nvmlDeviceGetCurrentClocksEventReasons, nvmlEventSetWait); Xid kinds in ncdiag/nccl/xid.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.nccl.smi import normal_address
from ncdiag.nccl.xid import Event

REASONS = {"sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
           "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80}  # fmt: skip
"""nvmlClocksEventReason…; idle and clocks that were set on purpose hold nothing down."""
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}
TEMPERATURE_GPU = 0
EVENT_XID = 0x8
XID_KINDS = ("hardware", "memory", "software", "other")
WAIT_MS = 1000
TIMEOUT = 10  # NVML_ERROR_TIMEOUT


class Gpus:
    """Keeps NVML open. `nvml`: the module to ask; pynvml when None."""

    def __init__(self, nvml: Any = None) -> None:
        self._given = nvml
        self._nvml: Any = None
        self._watch: XidWatch | None = None

    def read(self, sheet: Sheet) -> None:
        """Raises NotRead where NVML cannot be had, or shows no GPU."""
        nvml = self._open()
        try:
            count = nvml.nvmlDeviceGetCount()
            if not count:
                raise NotRead("NVML shows no GPU")
            lost = [index for index in range(count) if not self._device(nvml, index, sheet)]
        except nvml.NVMLError as error:
            self._close()
            raise NotRead(f"NVML: {error}") from None
        if self._watch is not None:
            self._watch.add(sheet)
        if lost:
            raise NotRead(f"GPU {', '.join(map(str, lost))} of {count} does not answer NVML")

    def watch(self) -> None:
        """Begins to count Xid events. Raises NotRead."""
        nvml = self._open()
        try:
            self._watch = XidWatch(nvml)
        except nvml.NVMLError as error:
            raise NotRead(f"NVML tells no Xid events: {error}") from None

    def _open(self) -> Any:
        if self._nvml is None:
            nvml = self._given or _pynvml()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                raise NotRead(f"NVML: {error}") from None
            self._nvml = nvml
        return self._nvml

    def _close(self) -> None:
        nvml, self._nvml = self._nvml, None
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass

    def _device(self, nvml: Any, index: int, sheet: Sheet) -> bool:
        """False for a GPU that does not answer: fallen off the bus, say."""
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            where = {"gpu": index, "busid": _address(nvml, handle)}
        except nvml.NVMLError:
            return False
        told = []

        def tell(
            series: str, question: Callable[..., Any], *arguments: int, scale: float = 1, **labels: object
        ) -> None:
            try:
                sheet.add(series, question(handle, *arguments) * scale, **where, **labels)
            except nvml.NVMLError:
                return
            told.append(series)

        for name, clock in CLOCKS.items():
            tell("ncdiag_gpu_clock_hertz", nvml.nvmlDeviceGetClockInfo, clock, scale=1e6, clock=name)
            tell("ncdiag_gpu_clock_max_hertz", nvml.nvmlDeviceGetMaxClockInfo, clock, scale=1e6, clock=name)
        tell("ncdiag_gpu_power_watts", nvml.nvmlDeviceGetPowerUsage, scale=1e-3)
        tell("ncdiag_gpu_power_limit_watts", nvml.nvmlDeviceGetEnforcedPowerLimit, scale=1e-3)
        tell("ncdiag_gpu_temperature_celsius", nvml.nvmlDeviceGetTemperature, TEMPERATURE_GPU)
        tell("ncdiag_gpu_utilization_ratio", lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu, scale=0.01)
        tell("ncdiag_gpu_memory_used_bytes", lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used)
        tell("ncdiag_gpu_memory_total_bytes", lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total)
        _throttle(nvml, handle, sheet, where)
        return bool(told)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        raise NotRead("nvidia-ml-py is not installed") from None
    return pynvml


def _throttle(nvml: Any, handle: Any, sheet: Sheet, where: dict[str, Any]) -> None:
    try:
        mask = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    except nvml.NVMLError:
        return
    for reason, bit in REASONS.items():
        sheet.add("ncdiag_gpu_throttle", bool(mask & bit), reason=reason, **where)


def _address(nvml: Any, handle: Any) -> str:
    found = nvml.nvmlDeviceGetPciInfo(handle).busId
    return normal_address(found.decode("ascii", "replace") if isinstance(found, bytes) else str(found))


class XidWatch:
    """Counts Xid events from now on, in a thread of its own. Raises NVMLError where no device tells them."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._lock = threading.Lock()
        self._counts: dict[tuple[int, str], dict[str, int]] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._events = nvml.nvmlEventSetCreate()
        refused = None
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, EVENT_XID, self._events)
            except nvml.NVMLError as error:
                refused = error
                continue
            self._counts[index, _address(nvml, handle)] = dict.fromkeys(XID_KINDS, 0)
        if refused is not None and not self._counts:
            raise refused
        threading.Thread(target=self._run, daemon=True, name="ncdiag-xid").start()

    def add(self, sheet: Sheet) -> None:
        with self._lock:
            for (index, busid), kinds in self._counts.items():
                for kind, count in kinds.items():
                    sheet.add("ncdiag_gpu_xid_total", count, gpu=index, busid=busid, kind=kind)
                if (index, busid) in self._last:
                    sheet.add("ncdiag_gpu_last_xid", self._last[index, busid], gpu=index, busid=busid)

    def _run(self) -> None:
        failures = 0
        while failures < 60:
            try:
                event = self._nvml.nvmlEventSetWait(self._events, WAIT_MS)
                self._count(event)
                failures = 0
            except self._nvml.NVMLError as error:
                if getattr(error, "value", None) != TIMEOUT:
                    failures += 1
                    threading.Event().wait(WAIT_MS / 1000)
        with self._lock:  # events can no longer be had: no series, rather than counters that stand still
            self._counts.clear()

    def _count(self, event: Any) -> None:
        if not event.eventType & EVENT_XID:
            return
        address = _address(self._nvml, event.device)
        with self._lock:
            for (index, busid), kinds in self._counts.items():
                if busid == address:
                    kinds[Event(int(event.eventData), address, "", False).kind] += 1
                    self._last[index, busid] = int(event.eventData)
