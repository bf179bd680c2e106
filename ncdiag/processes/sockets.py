"""TCP sockets of one process: /proc/PID/net/tcp and tcp6 joined with the inodes of its descriptors.

/proc/PID/net shows the network namespace of that process, so this works across namespaces and containers.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable, Mapping

from ncdiag.host import Host, HostError
from ncdiag.model import Socket
from ncdiag.processes import traffic

STATES = {
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
    12: "SYN_RECV",
}
"""include/net/tcp_states.h"""
TABLE_LIMIT = 64 << 20
_INODE = re.compile(r"socket:\[(\d+)\]")
_FIRST = {"LISTEN": 0, "SYN_SENT": 1, "SYN_RECV": 2}


def _address(text: str) -> str:
    """`0100007F:1F90` -> `127.0.0.1:8080`; the kernel prints each 32-bit word in the byte order of the machine."""
    hexadecimal, _, port = text.partition(":")
    words = [
        int(hexadecimal[index : index + 8], 16).to_bytes(4, sys.byteorder) for index in range(0, len(hexadecimal), 8)
    ]
    address = ipaddress.ip_address(b"".join(words))
    if address.version == 4:
        return f"{address}:{int(port, 16)}"
    mapped = address.ipv4_mapped
    return f"{mapped}:{int(port, 16)}" if mapped else f"[{address}]:{int(port, 16)}"


def parse_table(content: str) -> dict[int, Socket]:
    """inode -> socket, of one /proc/net/tcp or tcp6 file. Sockets without an owner (inode 0) are left out."""
    found: dict[int, Socket] = {}
    for line in content.splitlines()[1:]:
        columns = line.split()
        if len(columns) < 10 or columns[9] == "0":
            continue
        send, _, receive = columns[4].partition(":")
        state = STATES.get(int(columns[3], 16), columns[3])
        remote = _address(columns[2]) if state != "LISTEN" else ""
        found[int(columns[9])] = Socket(
            state, _address(columns[1]), remote, int(send, 16), int(receive, 16), int(columns[6], 16)
        )
    return found


class Tables:
    """The TCP tables of each network namespace, read once however many processes share it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tables: dict[str, Mapping[int, Socket]] = {}
        self._traffic: dict[str, Mapping[tuple[str, str], int]] = {}

    def of(self, pid: int) -> tuple[str, Mapping[int, Socket]]:
        """(namespace, inode -> socket). Raises HostError when the process is gone or may not be read."""
        namespace = self._host.link(f"/proc/{pid}/ns/net")
        if namespace not in self._tables:
            table: dict[int, Socket] = {}
            for name in ("tcp", "tcp6"):
                try:
                    table.update(
                        parse_table(
                            self._host.read_bytes(f"/proc/{pid}/net/{name}", TABLE_LIMIT).decode("ascii", "replace")
                        )
                    )
                except HostError:
                    if name == "tcp":
                        raise
            self._tables[namespace] = table
        return namespace, self._tables[namespace]

    def traffic(self, pid: int) -> Mapping[tuple[str, str], int]:
        """(local, remote) -> bytes since it was connected. Raises HostError when the process is gone or may not be read."""
        namespace, table = self.of(pid)
        if namespace not in self._traffic:
            counts = traffic.of(self._host, pid)
            self._traffic[namespace] = {
                (socket.local, socket.remote): counts[inode] for inode, socket in table.items() if inode in counts
            }
        return self._traffic[namespace]


def read(host: Host, pid: int, tables: Tables) -> tuple[str, list[Socket]]:
    """(network namespace, sockets of `pid`): listening and dialling ones first. Raises HostError."""
    namespace, table = tables.of(pid)
    folder, mine = f"/proc/{pid}/fd", {}
    for name in host.list(folder):
        try:
            match = _INODE.match(host.link(f"{folder}/{name}"))
        except HostError:
            continue
        if match and int(match.group(1)) in table:
            mine[int(match.group(1))] = table[int(match.group(1))]
    return namespace, sorted(mine.values(), key=lambda item: (_FIRST.get(item.state, 9), item.local, item.remote))


def of(host: Host, pid: int, descriptors: Iterable[int], tables: Tables) -> list[Socket]:
    """The TCP sockets among some descriptors of `pid`; empty where it is gone or may not be read."""
    found = []
    try:
        _, table = tables.of(pid)
        for number in descriptors:
            match = _INODE.match(host.link(f"/proc/{pid}/fd/{number}"))
            if match and int(match.group(1)) in table:
                found.append(table[int(match.group(1))])
    except HostError:
        pass
    return found


DOMAIN = 53
"""The port of name servers."""


def name_servers(host: Host, pid: int, descriptors: Iterable[int]) -> list[str]:
    """The name servers (`address:port`) to which some descriptors of `pid` lead by UDP (/proc/PID/net/udp and udp6, in the form of tcp)."""
    found = []
    try:
        inodes = {
            int(match.group(1)) for fd in descriptors if (match := _INODE.match(host.link(f"/proc/{pid}/fd/{fd}")))
        }
        for name in ("udp", "udp6") if inodes else ():
            table = parse_table(host.read_bytes(f"/proc/{pid}/net/{name}", TABLE_LIMIT).decode("ascii", "replace"))
            found += [
                table[inode].remote for inode in inodes & table.keys() if table[inode].remote.endswith(f":{DOMAIN}")
            ]
    except HostError:
        pass
    return sorted(found)


def compare(pid: int, before: list[Socket], first: Tables, tables: Tables) -> None:
    """Says of each of the sockets that `pid` had in the `first` tables whether it moved, and how much; one that has gone did."""
    try:
        then, later_on = first.traffic(pid), tables.traffic(pid)
        now = {(socket.local, socket.remote): socket for socket in tables.of(pid)[1].values()}
    except HostError:
        return
    for socket in before:
        ends = (socket.local, socket.remote)
        later = now.get(ends)
        if ends in then and ends in later_on:
            socket.bytes = max(later_on[ends] - then[ends], 0)
        socket.moved = later is None or (later.send_queue, later.receive_queue) != (
            socket.send_queue,
            socket.receive_queue,
        )
        if later is not None:
            socket.retransmits = later.retransmits
