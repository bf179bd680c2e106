"""How many bytes went over each TCP connection, by the kernel's socket monitoring: what no file of /proc says.

Source: Linux include/uapi/linux/{sock_diag,inet_diag,tcp}.h (tcpi_bytes_acked and tcpi_bytes_received since 4.1). Nothing of it needs root.
"""

from __future__ import annotations

import socket
import struct
from typing import Dict, Iterator

from ncdiag import rtnetlink
from ncdiag.host import Host, HostError
from ncdiag.nccl import netns

_SOCK_DIAG, _BY_FAMILY, _INFO = 4, 20, 2
_ESTABLISHED = 1 << 1
_REQUEST = struct.Struct("=BBBBI48x")
_INODE_AT, _MESSAGE = 68, 72
"""Of struct inet_diag_msg: where the inode stands, and its size."""
_BYTES_AT = 120
"""Of struct tcp_info: tcpi_bytes_acked and tcpi_bytes_received, 8 bytes each."""
LIMIT_S = 3.0


def of(host: Host, pid: int) -> Dict[int, int]:
    """Inode -> bytes that were received or sent and acknowledged since it was connected, of every connection in the network namespace of `pid`;
    empty where the kernel does not say."""
    file = f"/proc/{pid}/ns/net"
    try:
        answer = host.ask(
            f"traffic {pid}", lambda: _read() if netns.is_ours(file) else netns.inside(file, _read, LIMIT_S)
        )
    except HostError:
        return {}
    return {int(inode): int(count) for inode, count in answer.items()}


def _read() -> Dict[str, int]:
    found: Dict[str, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        for message in _dump(_REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 0, _ESTABLISHED)):
            info = rtnetlink.attributes(message[_MESSAGE:]).get(_INFO, b"")
            if len(info) >= _BYTES_AT + 16:
                (inode,) = struct.unpack_from("=I", message, _INODE_AT)
                found[str(inode)] = sum(struct.unpack_from("=QQ", info, _BYTES_AT))
    return found


def _dump(request: bytes) -> Iterator[bytes]:
    """The body of every message of the answer. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as link:
        link.settimeout(rtnetlink.TIMEOUT_S)
        flags = rtnetlink.NLM_F_REQUEST | rtnetlink.NLM_F_DUMP
        link.sendto(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, flags, 1, 0) + request, (0, 0))
        while True:
            data, at = link.recv(1 << 18), 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == rtnetlink.NLMSG_DONE:
                    return
                if kind == rtnetlink.NLMSG_ERROR:
                    number = -struct.unpack_from("=i", data, at + 16)[0]
                    raise OSError(number, "the kernel refused the dump of sockets")
                yield data[at + 16 : at + length]
                at += (max(length, 16) + 3) & ~3
