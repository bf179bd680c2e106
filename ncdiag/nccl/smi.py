"""What nvidia-smi prints, as plain data: one `<gpu>` of `-q -x`, and the lists of `nvidia-smi nvlink`.

Source: nvidia-smi of drivers 470 to 580; element names changed with 535 (clocks_throttle_reasons, power_readings).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Dict, List, Optional, TypedDict

_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d+)?")
_LOST = re.compile(r"(?:GPU )?(?:is lost|requires reset|has fallen off the bus)", re.I)
"""What stands in every field of a GPU that answers no more."""
_NO_VALUE = re.compile(
    r"n/a|not supported|unknown error|err!?|insufficient permissions|function not found|"
    r"requested functionality has been deprecated|no data",
    re.I,
)
"""What stands in a field instead of a value, with or without brackets."""


class Link(TypedDict):
    number: int
    active: bool
    remote: Optional[str]  # PCI address of the other end; None: hidden or not told
    to_gpu: bool
    errors: int  # sum of replay, recovery and CRC errors since the driver was loaded


class Process(TypedDict):
    pid: int
    name: str
    memory_mib: Optional[int]


class Gpu(TypedDict):
    """One GPU. None: the driver answers N/A, or is too old to know."""

    index: int  # NVML index
    busid: str  # 0000:07:00.0
    name: str
    lost: Optional[str]  # the driver's words in the place of values: GPU is lost, GPU requires reset
    uuid: str
    sm: Optional[int]  # 90 for compute capability 9.0
    memory_total_mib: Optional[int]
    memory_used_mib: Optional[int]
    bar1_total_mib: Optional[int]
    persistence: Optional[bool]
    compute_mode: Optional[str]  # Default, Exclusive_Process, Prohibited
    mig: Optional[bool]
    ecc: Optional[bool]
    ecc_uncorrected: Optional[int]  # since the driver was loaded
    ecc_uncorrected_ever: Optional[int]
    remap_pending: Optional[bool]
    remap_failed: Optional[bool]
    recovery: Optional[str]  # what the driver wants: None, GPU Reset, Node Reboot, Drain P2P …
    throttle: Optional[List[str]]  # active reasons: hw_slowdown, sw_power_cap …; None: not told
    sm_clock_mhz: Optional[int]
    sm_clock_max_mhz: Optional[int]
    application_clock_mhz: Optional[int]
    default_application_clock_mhz: Optional[int]
    power_limit_w: Optional[float]
    default_power_limit_w: Optional[float]
    temperature_c: Optional[int]
    utilisation: Optional[int]  # percent
    pcie_gen: Optional[int]  # current; drops when idle
    pcie_gen_max: Optional[int]  # of device and slot together
    pcie_width: Optional[int]
    pcie_width_max: Optional[int]
    fabric_state: Optional[str]  # Completed, In Progress, Not Started
    fabric_status: Optional[str]
    fabric_clique: Optional[str]
    fabric_cluster: Optional[str]
    processes: List[Process]
    nvlinks: Optional[List[Link]]  # None: not told


def gpu(element: ElementTree.Element, place: int, capability: Dict[str, int]) -> Gpu:
    def text(path: str) -> Optional[str]:
        return _told(element.findtext(path) or "")

    def number(path: str) -> Optional[int]:
        match = _NUMBER.search(text(path) or "")
        return int(float(match.group())) if match else None

    def yes(path: str) -> Optional[bool]:
        return {"Yes": True, "Enabled": True, "No": False, "Disabled": False}.get(text(path) or "")

    busid = normal_address(element.get("id") or text("pci/pci_bus_id") or "")
    return {
        "index": place,
        "busid": busid,
        "name": text("product_name") or "",
        "lost": _lost(element),
        "uuid": text("uuid") or "",
        "sm": capability.get(busid),
        "memory_total_mib": number("fb_memory_usage/total"),
        "memory_used_mib": number("fb_memory_usage/used"),
        "bar1_total_mib": number("bar1_memory_usage/total"),
        "persistence": yes("persistence_mode"),
        "compute_mode": text("compute_mode"),
        "mig": yes("mig_mode/current_mig"),
        "ecc": yes("ecc_mode/current_ecc"),
        "ecc_uncorrected": _uncorrected(element.find("ecc_errors/volatile")),
        "ecc_uncorrected_ever": _uncorrected(element.find("ecc_errors/aggregate")),
        "remap_pending": yes("remapped_rows/remapped_row_pending"),
        "remap_failed": yes("remapped_rows/remapped_row_failure"),
        "recovery": text("gpu_recovery_action"),
        "throttle": _throttle(element),
        "sm_clock_mhz": number("clocks/sm_clock"),
        "sm_clock_max_mhz": number("max_clocks/sm_clock"),
        "application_clock_mhz": number("applications_clocks/graphics_clock"),
        "default_application_clock_mhz": number("default_applications_clocks/graphics_clock"),
        "power_limit_w": number("gpu_power_readings/current_power_limit") or number("power_readings/power_limit"),
        "default_power_limit_w": number("gpu_power_readings/default_power_limit")
        or number("power_readings/default_power_limit"),
        "temperature_c": number("temperature/gpu_temp"),
        "utilisation": number("utilization/gpu_util"),
        "pcie_gen": number("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
        "pcie_gen_max": number("pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        "pcie_width": number("pci/pci_gpu_link_info/link_widths/current_link_width"),
        "pcie_width_max": number("pci/pci_gpu_link_info/link_widths/max_link_width"),
        "fabric_state": text("fabric/state"),
        "fabric_status": text("fabric/status"),
        "fabric_clique": text("fabric/cliqueId"),
        "fabric_cluster": text("fabric/clusterUuid"),
        "processes": _processes(element),
        "nvlinks": None,
    }


def _told(value: str) -> Optional[str]:
    """A field's value; None where something else stands in its place."""
    bare = value.strip().strip("[]")
    return None if not bare or _NO_VALUE.fullmatch(bare) or _LOST.fullmatch(bare) else value.strip()


def _lost(element: ElementTree.Element) -> Optional[str]:
    """The driver's words where at least three fields hold them; one alone may be a sensor's."""
    words = [(child.text or "").strip().strip("[]") for child in element.iter()]
    found = [word for word in words if _LOST.fullmatch(word)]
    return found[0] if len(found) >= 3 else None


def normal_address(text: str) -> str:
    """`00000000:07:00.0` as sysfs writes it: `0000:07:00.0`."""
    domain, colon, rest = text.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}" if len(domain) == 8 and domain.startswith("0000") else text.lower()


def _uncorrected(element: Optional[ElementTree.Element]) -> Optional[int]:
    """All counters of uncorrectable errors together; their names changed with the driver."""
    if element is None:
        return None
    values = [child.text or "" for child in element.iter() if "uncorrectable" in child.tag]
    numbers = [int(value) for value in values if value.strip().isdecimal()]
    return sum(numbers) if numbers else None


def _throttle(element: ElementTree.Element) -> Optional[List[str]]:
    active, told = [], False
    for group in ("clocks_event_reasons", "clocks_throttle_reasons"):
        for child in element.findall(f"{group}/*"):
            word = (child.text or "").strip()
            told = told or word in ("Active", "Not Active")
            if word == "Active":
                active.append(re.sub(r"^clocks_(?:event|throttle)_reasons?_", "", child.tag))
    return active if told else None


def _processes(element: ElementTree.Element) -> List[Process]:
    found: List[Process] = []
    for one in element.findall("processes/process_info"):
        pid, memory = one.findtext("pid") or "", _NUMBER.search(one.findtext("used_memory") or "")
        if pid.isdecimal():
            used = int(float(memory.group())) if memory else None
            found.append({"pid": int(pid), "name": one.findtext("process_name") or "", "memory_mib": used})
    return found


def per_link(lines: List[str]) -> Dict[int, Dict[int, List[str]]]:
    """GPU index -> link number -> what is said of it (`26.562 GB/s`, `<inactive>`, `Replay Errors: 0`)."""
    found: Dict[int, Dict[int, List[str]]] = {}
    gpu = -1
    for line in lines:
        head = re.match(r"GPU (\d+):", line)
        if head:
            gpu = int(head.group(1))
            found[gpu] = {}
        link = re.match(r"\s+Link (\d+):\s*(.*)", line)
        if link and gpu in found:
            found[gpu].setdefault(int(link.group(1)), []).append(link.group(2))
    return found
