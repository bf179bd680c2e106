"""The RDMA devices of a node and their ports, as facts for other probes; nothing is judged here.

Everything that NCCL asks of a port before it uses it is in it, except what only the verbs library tells (active MTU).

Source: /sys/class/infiniband and /sys/class/infiniband_verbs (kernel Documentation/ABI/stable/sysfs-class-infiniband).
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, TypedDict

from ncdiag.host import Host
from ncdiag.model import Probe
from ncdiag.nccl.sysfs import names, numbered, pci_steps, target, word

CLASS = "/sys/class/infiniband"
MAX_DEVICES = 512  # a host with many VFs; the rest is left out and said

_RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec(?: \((\d+)X(?: (\w+))?\))?")


class Port(TypedDict):
    """One port. None: the driver has no such file, or it cannot be read."""

    number: int
    state: Optional[str]  # the word in ports/<n>/state: ACTIVE, DOWN, INIT, ARMED
    phys_state: Optional[str]  # the word in ports/<n>/phys_state: LinkUp, Polling, Disabled
    link_layer: Optional[str]  # ports/<n>/link_layer: InfiniBand, Ethernet, Unknown
    rate_gbits_s: Optional[float]  # the number in ports/<n>/rate: 400.0 of "400 Gb/sec (4X NDR)"
    lanes: Optional[int]  # 4 of "4X"
    speed: Optional[str]  # NDR
    lid: Optional[str]  # ports/<n>/lid; 0x0 is usual for RoCE
    sm_lid: Optional[str]
    netdevs: List[str]  # interfaces of its first GIDs, then those of the same PCI function


class Device(TypedDict):
    name: str
    node_type: Optional[str]  # the word in node_type: CA, RNIC, unspecified
    firmware: Optional[str]  # fw_ver
    board: Optional[str]  # board_id, or hca_type
    guid: Optional[str]  # sys_image_guid: equal on the ports of one card
    busid: Optional[str]  # PCI address of device; None for a software device
    parent: Optional[str]  # netdev of a software device (rxe, siw)
    driver: Optional[str]
    numa_node: Optional[int]
    virtual: bool  # a VF
    verbs: Optional[int]  # N of uverbsN; None: no user-space access to it
    ports: List[Port]


class Facts(TypedDict):
    devices: List[Device]
    has_class: bool  # /sys/class/infiniband exists: some RDMA driver is loaded
    cut: bool


def collect(host: Host) -> Facts:
    host.list("/sys/class")  # without it nothing can be said
    has_class = host.exists(CLASS)
    devices = host.names(CLASS)
    verbs = _verbs(host)
    return {
        "devices": [_device(host, name, verbs.get(name)) for name in devices[:MAX_DEVICES]],
        "has_class": has_class,
        "cut": len(devices) > MAX_DEVICES,
    }


def _verbs(host: Host) -> Dict[str, int]:
    """Device -> N of its uverbsN."""
    found: Dict[str, int] = {}
    base = "/sys/class/infiniband_verbs"
    for name in names(host, base):
        device = word(host, f"{base}/{name}/ibdev") if name.startswith("uverbs") else None
        if device and name[6:].isdecimal():
            found[device] = int(name[6:])
    return found


def _device(host: Host, name: str, verbs: Optional[int]) -> Device:
    base = f"{CLASS}/{name}"
    address = next(iter(reversed(pci_steps(host, f"{base}/device"))), None)
    parent = word(host, f"{base}/parent")
    own = sorted(names(host, f"{base}/device/net")) if address else []
    return {
        "name": name,
        "node_type": (word(host, f"{base}/node_type") or "").partition(": ")[2] or None,
        "firmware": word(host, f"{base}/fw_ver") or None,
        "board": word(host, f"{base}/board_id") or word(host, f"{base}/hca_type") or None,
        "guid": word(host, f"{base}/sys_image_guid") or None,
        "busid": address,
        "parent": parent or None,
        "driver": target(host, f"{base}/device/driver"),
        "numa_node": host.number(f"{base}/device/numa_node"),
        "virtual": host.exists(f"{base}/device/physfn"),
        "verbs": verbs,
        "ports": [_port(host, base, number, own, parent) for number in numbered(host, f"{base}/ports")],
    }


def _port(host: Host, device: str, number: int, own: List[str], parent: Optional[str]) -> Port:
    base = f"{device}/ports/{number}"
    rate = _RATE.match(word(host, f"{base}/rate") or "")
    netdevs: Dict[str, None] = {}
    for index in range(4):
        name = word(host, f"{base}/gid_attrs/ndevs/{index}")
        if name:
            netdevs[name] = None
    for name in [parent] if parent else own:
        netdevs.setdefault(name)
    return {
        "number": number,
        "state": _after_colon(word(host, f"{base}/state")),
        "phys_state": _after_colon(word(host, f"{base}/phys_state")),
        "link_layer": word(host, f"{base}/link_layer") or None,
        "rate_gbits_s": float(rate.group(1)) if rate else None,
        "lanes": int(rate.group(2)) if rate and rate.group(2) else None,
        "speed": rate.group(3) if rate else None,
        "lid": word(host, f"{base}/lid"),
        "sm_lid": word(host, f"{base}/sm_lid"),
        "netdevs": list(netdevs),
    }


def _after_colon(text: Optional[str]) -> Optional[str]:
    return (text or "").partition(": ")[2] or None


PROBE = Probe("rdma-devices", "facts: RDMA devices and their ports", None, collect)
