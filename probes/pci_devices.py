"""The GPUs, network cards and NVSwitches of a node and the bridges above them, as facts for other probes.

NCCL orders devices by their place in this tree; a container that hides parts of /sys, or a link that trained low, shows here.
Nothing is judged: `pcie-link`, `numa-affinity`, `acs-iommu`, `gpudirect` and `ncdiag topo live` are.

Source: /sys/bus/pci/devices (kernel Documentation/ABI/testing/sysfs-bus-pci), PCIe base specification for the ACS capability.
"""

from __future__ import annotations

import re
import struct
from typing import Dict, List, Optional, Tuple, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Probe
from ncdiag.nccl.sysfs import PCI_ADDRESS, names, pci_steps, target, word

DEVICES = "/sys/bus/pci/devices"
ACS_CAPABILITY = 0x000D  # extended capability id; its control word is at +6
ATS_CAPABILITY = 0x000F
PCIE_CAPABILITY = 0x10  # its device control word is at +8
RELAXED_ORDERING = 1 << 4  # of that word
EXTENDED_CONFIG = 0x100  # bytes; without root only the first 64 can be read
NVIDIA = "0x10de"
MAX_FUNCTIONS = 4096  # cards and bridges; larger trees are cut and say so

_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*GT/s")


class Function(TypedDict):
    """One PCI function. None: no such file, or `Unknown` in it."""

    pci_class: str  # <bdf>/class: 0x030200
    vendor: str  # <bdf>/vendor: 0x10de
    device: str
    subsystem_vendor: str
    subsystem_device: str
    kind: str  # gpu, nic, nvswitch, bridge
    parents: List[str]  # bridges above it, the root port first, from its real path
    numa_node: Optional[int]  # <bdf>/numa_node; -1: the firmware does not say
    driver: Optional[str]  # name of <bdf>/driver
    current_gts: Optional[float]  # GT/s a lane, <bdf>/current_link_speed
    max_gts: Optional[float]  # <bdf>/max_link_speed: the device's own ability
    current_width: Optional[int]  # lanes, <bdf>/current_link_width
    max_width: Optional[int]
    virtual: bool  # a VF: <bdf>/physfn exists
    iommu_group: Optional[str]
    netdevs: List[str]  # interfaces of a network card: <bdf>/net, or <bdf>/virtio<n>/net
    gone: Optional[
        bool
    ]  # its configuration space reads 0xff throughout, and it is not powered down; None: not readable
    acs: Optional[int]  # ACS control word; -1: the device has none; None: not readable here (needs root)
    ats: Optional[bool]  # has the ATS capability; None: not readable here
    relaxed_ordering: Optional[bool]  # enabled in the device control word; None: not readable here (needs root)
    aer_correctable: Optional[int]  # TOTAL_ERR_COR of <bdf>/aer_dev_correctable
    aer_fatal: Optional[int]  # TOTAL_ERR_FATAL plus TOTAL_ERR_NONFATAL


class Facts(TypedDict):
    functions: Dict[str, Function]  # by address
    iommus: List[str]  # names in /sys/class/iommu
    group_types: Dict[str, str]  # /sys/kernel/iommu_groups/<n>/type of the groups above
    kernel_options: List[str]  # words of /proc/cmdline that speak of IOMMU or ACS
    cut: bool


def collect(host: Host) -> Facts:
    functions: Dict[str, Function] = {}
    host.list("/sys/bus")  # without it nothing can be said; a machine without PCI has it and no devices
    wanted = [address for address in host.names(DEVICES) if PCI_ADDRESS.match(address)]
    cards = [address for address in wanted if _kind(host, address) in ("gpu", "nic", "nvswitch")]
    for address in cards[:MAX_FUNCTIONS]:
        card = _function(host, address)
        functions[address] = card
        for parent in card["parents"]:
            if parent not in functions:
                functions[parent] = _function(host, parent)
    groups = sorted({one["iommu_group"] for one in functions.values() if one["iommu_group"]})
    types = {group: word(host, f"/sys/kernel/iommu_groups/{group}/type") for group in groups}
    options = (word(host, "/proc/cmdline") or "").split()
    return {
        "functions": functions,
        "iommus": names(host, "/sys/class/iommu"),
        "group_types": {group: kind for group, kind in types.items() if kind},
        "kernel_options": [word for word in options if "iommu" in word or "acs" in word],
        "cut": len(cards) > MAX_FUNCTIONS,
    }


def _kind(host: Host, address: str) -> str:
    base = f"{DEVICES}/{address}"
    found = word(host, f"{base}/class") or ""
    if found.startswith(("0x0302", "0x0380", "0x12")):
        return "gpu"
    if found.startswith("0x0300"):
        return "gpu" if word(host, f"{base}/vendor") == NVIDIA else "other"
    if found.startswith("0x02"):
        bound = host.exists(f"{base}/infiniband") or not host.exists(f"{base}/physfn")
        return "nic" if bound else "other"  # a VF without RDMA belongs to some guest
    if found.startswith("0x0680"):
        return "nvswitch" if word(host, f"{base}/vendor") == NVIDIA else "bridge"
    return "bridge" if found.startswith("0x06") else "other"


def _function(host: Host, address: str) -> Function:
    base = f"{DEVICES}/{address}"
    config = _config(host, base)
    acs, ats, relaxed = _capabilities(config)
    group = target(host, f"{base}/iommu_group")
    return {
        "pci_class": word(host, f"{base}/class") or "",
        "vendor": word(host, f"{base}/vendor") or "",
        "device": word(host, f"{base}/device") or "",
        "subsystem_vendor": word(host, f"{base}/subsystem_vendor") or "",
        "subsystem_device": word(host, f"{base}/subsystem_device") or "",
        "kind": _kind(host, address),
        "parents": pci_steps(host, base)[:-1],
        "numa_node": host.number(f"{base}/numa_node"),
        "driver": target(host, f"{base}/driver"),
        "current_gts": _rate(host, f"{base}/current_link_speed"),
        "max_gts": _rate(host, f"{base}/max_link_speed"),
        "current_width": _lanes(host, f"{base}/current_link_width"),
        "max_width": _lanes(host, f"{base}/max_link_width"),
        "virtual": host.exists(f"{base}/physfn"),
        "iommu_group": group,
        "netdevs": _netdevs(host, base),
        "gone": _gone(host, base, config),
        "acs": acs,
        "ats": ats,
        "relaxed_ordering": relaxed,
        "aer_correctable": _total(host, f"{base}/aer_dev_correctable"),
        "aer_fatal": _fatal(host, base),
    }


def _netdevs(host: Host, base: str) -> List[str]:
    folders = [base] + [f"{base}/{name}" for name in names(host, base) if name.startswith("virtio")]
    return sorted(name for folder in folders for name in names(host, f"{folder}/net"))


def _config(host: Host, base: str) -> bytes:
    """The configuration space; empty where it cannot be read."""
    try:
        return host.read_bytes(f"{base}/config", 4096)
    except HostError:
        return b""


def _gone(host: Host, base: str, config: bytes) -> Optional[bool]:
    """A card that fell off the bus answers nothing, which reads as ones; so does one without power."""
    if not config:
        return None
    return not config.strip(b"\xff") and (word(host, f"{base}/power_state") or "") != "D3cold"


def _capabilities(config: bytes) -> Tuple[Optional[int], Optional[bool], Optional[bool]]:
    """(ACS control word, has ATS, relaxed ordering is enabled) from the configuration space."""
    if not config.strip(b"\xff"):
        return None, None, None
    relaxed = _relaxed(config)
    if len(config) <= EXTENDED_CONFIG:
        return None, None, relaxed
    found = _extended(config)
    place = found.get(ACS_CAPABILITY)
    if place is None or place + 8 > len(config):
        return -1, ATS_CAPABILITY in found, relaxed
    return struct.unpack_from("<H", config, place + 6)[0], ATS_CAPABILITY in found, relaxed


def _relaxed(config: bytes) -> Optional[bool]:
    """From the list of capabilities, which begins at the address in byte 0x34; a list that loops ends there."""
    place, seen = config[0x34] & 0xFC if len(config) > 0x40 else 0, set()
    while 0x40 <= place <= len(config) - 10 and place not in seen:
        seen.add(place)
        if config[place] == PCIE_CAPABILITY:
            return bool(struct.unpack_from("<H", config, place + 8)[0] & RELAXED_ORDERING)
        place = config[place + 1] & 0xFC
    return None


def _extended(config: bytes) -> Dict[int, int]:
    """Extended capability id -> offset; a chain that loops or leaves the space ends there."""
    found: Dict[int, int] = {}
    place = EXTENDED_CONFIG
    while EXTENDED_CONFIG <= place <= len(config) - 4 and place not in found.values():
        word = struct.unpack_from("<I", config, place)[0]
        if word in (0, 0xFFFFFFFF):
            break
        found[word & 0xFFFF] = place
        place = word >> 20
    return found


def _fatal(host: Host, base: str) -> Optional[int]:
    numbers = [_total(host, f"{base}/aer_dev_{name}") for name in ("fatal", "nonfatal")]
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _total(host: Host, path: str) -> Optional[int]:
    match = re.search(r"TOTAL_ERR_\w+ (\d+)", word(host, path) or "")
    return int(match.group(1)) if match else None


def _rate(host: Host, path: str) -> Optional[float]:
    match = _RATE.match(word(host, path) or "")
    return float(match.group(1)) if match else None


def _lanes(host: Host, path: str) -> Optional[int]:
    """0, 63 and 255 stand for `not known`."""
    number = host.number(path)
    return number if number and number < 63 else None


PROBE = Probe("pci-devices", "facts: GPUs, network cards and the PCI tree above them", None, collect)
