"""Small reads of /sys that answer None where a file is absent or unreadable. For probes; every read goes through a Host."""

from __future__ import annotations

import re
from typing import List, Optional

from ncdiag.host import Host, HostError

PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def word(host: Host, path: str) -> Optional[str]:
    """The stripped text of a small file."""
    try:
        return host.value(path)
    except HostError:
        return None


def names(host: Host, path: str) -> List[str]:
    """Names in a folder; empty where it is absent or unreadable."""
    try:
        return host.names(path)
    except HostError:
        return []


def numbered(host: Host, path: str) -> List[int]:
    """The names in a folder that are numbers, in their order."""
    return sorted(int(name) for name in names(host, path) if name.isdecimal())


def target(host: Host, path: str) -> Optional[str]:
    """The last part of what a link points to: a driver's name, an IOMMU group's number."""
    try:
        return host.link(path).rstrip("/").rpartition("/")[2]
    except HostError:
        return None


def pci_steps(host: Host, path: str) -> List[str]:
    """The PCI addresses in the real path of `path`, the root port first; empty for virtual devices."""
    try:
        steps = host.real(path).split("/")
    except HostError:
        return []
    return [step for step in steps if PCI_ADDRESS.match(step)]
