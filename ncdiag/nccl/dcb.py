"""PFC, ETS and the DSCP table of an interface, asked from the kernel by DCB netlink; no tool is needed. Travels to nodes.

Source: Linux include/uapi/linux/dcbnl.h (struct dcbmsg, ieee_pfc, ieee_ets, dcb_app), net/dcb/dcbnl.c; IEEE 802.1Q for the algorithms.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Dict, List

from ncdiag.rtnetlink import NLM_F_REQUEST, NLMSG_ERROR, TIMEOUT_S, attributes

RTM_GETDCB = 78
CMD_IEEE_GET = 21
ATTR_IFNAME, ATTR_IEEE = 1, 13
IEEE_ETS, IEEE_PFC, IEEE_APP_TABLE = 1, 2, 3
IEEE_APP = 1
SELECTOR_DSCP = 5
ALGORITHMS = {0: "strict", 1: "credit", 2: "ETS", 255: "vendor"}


def ask(name: str) -> Dict[str, Any]:
    """`pfc`: priorities that are on (None: not told); `ets`: `class` of each priority, `bandwidth` in % and `algorithm` of each
    class, or None; `dscp`: DSCP -> priority (as text), empty where the card does not go by DSCP or was given no table.

    Raises OSError: EOPNOTSUPP where the driver has no DCB, ENODEV without such an interface.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as link:
        link.settimeout(TIMEOUT_S)
        value = name.encode() + b"\0"
        body = struct.pack("=BBH", 0, CMD_IEEE_GET, 0) + struct.pack("=HH", 4 + len(value), ATTR_IFNAME)
        body += value + bytes(-len(value) % 4)
        link.sendto(struct.pack("=IHHII", 16 + len(body), RTM_GETDCB, NLM_F_REQUEST, 1, 0) + body, (0, 0))
        data = link.recv(1 << 16)
    if len(data) < 20:
        raise OSError("the kernel's answer was cut")
    if struct.unpack_from("=H", data, 4)[0] == NLMSG_ERROR:
        number = -struct.unpack_from("=i", data, 16)[0]
        raise OSError(number, "the driver tells nothing of DCB (errno %d)" % number)
    return parse(data[20:])


def parse(data: bytes) -> Dict[str, Any]:
    """The attributes behind `struct dcbmsg`."""
    told = attributes(attributes(data).get(ATTR_IEEE, b""))
    pfc = told.get(IEEE_PFC, b"")
    return {
        "pfc": [bit for bit in range(8) if pfc[1] >> bit & 1] if len(pfc) > 1 else None,
        "ets": _ets(told[IEEE_ETS]) if len(told.get(IEEE_ETS, b"")) >= 35 else None,
        "dscp": _dscp(told.get(IEEE_APP_TABLE, b"")),
    }


def _ets(data: bytes) -> Dict[str, List[Any]]:
    """willing, capacity, shaper; then eight bytes each: bandwidth out, in, algorithm, class of each priority."""
    algorithms = [ALGORITHMS.get(one, str(one)) for one in data[19:27]]
    return {"bandwidth": list(data[3:11]), "algorithm": algorithms, "class": list(data[27:35])}


def _dscp(data: bytes) -> Dict[str, int]:
    """Every entry has the same attribute type, so they are walked here."""
    found: Dict[str, int] = {}
    at = 0
    while at + 8 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 8:
            break
        selector, priority, protocol = struct.unpack_from("=BBH", data, at + 4)
        if kind & 0x3FFF == IEEE_APP and selector == SELECTOR_DSCP:
            found[str(protocol)] = priority
        at += (length + 3) & ~3
    return found
