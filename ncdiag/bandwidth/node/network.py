"""How the node is reached: its interfaces, RDMA devices and addresses."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import ipaddress
import os
import socket
import struct
from typing import Any, Dict, List, Optional

SIOCGIFADDR = 0x8915


def addresses() -> Dict[str, str]:
    """Interface -> its IPv4 address."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def link(name: str) -> Dict[str, Any]:
    """Speed in Mbit/s and MTU of an interface (/sys/class/net/NAME/{speed,mtu}), and whether there is a device behind it at all."""
    found: Dict[str, Any] = {"virtual": not os.path.exists("/sys/class/net/%s/device" % name)}
    for key in ("speed", "mtu"):
        try:
            with open("/sys/class/net/%s/%s" % (name, key)) as file:
                found[key] = int(file.read())
        except (OSError, ValueError):
            found[key] = None
    return found


def hcas() -> List[str]:
    """RDMA devices with an active port (/sys/class/infiniband/DEVICE/ports/PORT/state)."""
    found = []
    for path in sorted(glob.glob("/sys/class/infiniband/*/ports/*/state")):
        with contextlib.suppress(OSError), open(path) as file:
            name = path.split("/")[4]
            if "ACTIVE" in file.read() and name not in found:
                found.append(name)
    return found


def own_address(interfaces: Dict[str, str]) -> str:
    """The address by which others most likely reach this node: what it was told, else where its SSH session came in (sshd behind a pipe says
    UNKNOWN, a tunnel ends at the loopback), else that of its name, else its first."""
    if os.environ.get("NCDIAG_ADDRESS"):
        return os.environ["NCDIAG_ADDRESS"]
    parts = os.environ.get("SSH_CONNECTION", "").split()
    if len(parts) == 4 and _is_reachable(parts[2]):
        return parts[2]
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(socket.gethostname())
        if not address.startswith("127."):
            return address
    return next((address for address in interfaces.values() if not address.startswith("127.")), "127.0.0.1")


def _is_reachable(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback or address.is_unspecified or "%" in text
    )  # a scope means something on its own host only


def way_to(host: str, interfaces: Dict[str, str]) -> Optional[str]:
    """The interface that leads to `host`."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            local = probe.getsockname()[0]
    except OSError:
        return None
    return next((name for name, address in interfaces.items() if address == local), None)
