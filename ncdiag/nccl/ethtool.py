"""The statistics of a network card, as `ethtool -S` shows them, without the tool.

Source: include/uapi/linux/ethtool.h: SIOCETHTOOL with ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS and ETHTOOL_GSTATS.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import Dict

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_STATS_SET = 1  # ETH_SS_STATS
_STRING = 32  # ETH_GSTRING_LEN
MAX_STATISTICS = 8192  # mlx5 with many queues has about 3,000


def statistics(interface: str) -> Dict[str, int]:
    """Name -> value; empty where the driver has none. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        count = _count(control, interface)
        if not count:
            return {}
        names = _ask(control, interface, struct.pack("=III", _GSTRINGS, _STATS_SET, count) + bytes(count * _STRING))
        values = _ask(control, interface, struct.pack("=II", _GSTATS, count) + bytes(count * 8))
    found = {}
    for place in range(count):
        raw = names[12 + place * _STRING : 12 + (place + 1) * _STRING]
        name = raw.split(b"\0")[0].decode("ascii", "replace").strip()
        found[name] = struct.unpack_from("=Q", values, 8 + place * 8)[0]
    return found


def _count(control: socket.socket, interface: str) -> int:
    answer = _ask(control, interface, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATS_SET, 0))
    mask = struct.unpack_from("=Q", answer, 8)[0]
    return min(struct.unpack_from("=I", answer, 16)[0], MAX_STATISTICS) if mask else 0


def _ask(control: socket.socket, interface: str, request: bytes) -> bytes:
    buffer = array.array("B", request)
    address, _ = buffer.buffer_info()
    name = interface.encode()[:15]
    fcntl.ioctl(control.fileno(), _SIOCETHTOOL, struct.pack("16sP", name, address))
    return buffer.tobytes()
