"""TCP sockets of real programs, and the kernel's table line by line."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import pytest

from ncdiag.host import Host
from ncdiag.model import Socket
from ncdiag.processes.sockets import Tables, name_servers, parse_table, read

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


@pytest.mark.skipif(sys.byteorder != "little", reason="the lines were taken on a little-endian machine")
def test_lines_of_the_table() -> None:
    found = parse_table(
        HEAD
        + "   0: 00000000:733D 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 501 1 0 100 0 0 10 0\n"
        + "   1: 0100000A:D431 0200000A:733D 02 00000001:00000000 01:00000320 00000004     0        0 502 2 0 200 0 0 1 7\n"
        + "   2: 0100000A:D433 0200000A:733D 06 00000000:00000000 03:00000320 00000000     0        0 0 3 0\n"
        + "   3: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:C001 01 0000000A:00000000 00:0 00000000 0 0 503 1 0\n"
        + "   4: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 00000000 0 0 504 1 0\n"
    )
    assert set(found) == {501, 502, 503, 504}, "a socket in TIME_WAIT belongs to nobody"
    assert (found[501].state, found[501].local, found[501].remote, found[501].receive_queue) == (
        "LISTEN",
        "0.0.0.0:29501",
        "",
        1,
    )
    assert (found[502].state, found[502].local, found[502].remote, found[502].retransmits) == (
        "SYN_SENT",
        "10.0.0.1:54321",
        "10.0.0.2:29501",
        4,
    )
    assert (found[503].local, found[503].remote, found[503].send_queue) == ("127.0.0.1:8080", "127.0.0.1:49153", 10)
    assert found[504].local == "[::1]:8080"


def test_own_sockets_with_states_and_peers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(b"unread")
            namespace, found = read(Host(), os.getpid(), Tables(Host()))
    port, other = server_port(found)
    assert namespace.startswith("net:[")
    assert [item.state for item in found if item.local.endswith(f":{port}") and not item.remote] == ["LISTEN"]
    assert any(item.receive_queue == 6 and item.remote.endswith(f":{other}") for item in found)


def server_port(found: list[Socket]) -> tuple[str, str]:
    waiting = next(item for item in found if item.receive_queue == 6)
    return waiting.local.rpartition(":")[2], waiting.remote.rpartition(":")[2]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare for a network namespace"
)
def test_sockets_in_another_network_namespace() -> None:
    code = "import socket; s = socket.create_server(('0.0.0.0', 29544)); print('ready', flush=True); s.accept()"
    program = subprocess.Popen(["unshare", "--net", sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        if not program.stdout.readline():
            pytest.skip("no network namespace can be made here")
        namespace, found = read(Host(), program.pid, Tables(Host()))
        assert namespace != os.readlink("/proc/self/ns/net")
        assert [item.local for item in found if item.state == "LISTEN"] == ["0.0.0.0:29544"]
    finally:
        program.kill()
        program.communicate()


def test_name_servers_that_are_asked_by_udp() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as no,
    ):
        asks.connect(("127.0.0.1", 53))
        no.connect(("127.0.0.1", 5353))
        told = [name_servers(Host(), os.getpid(), [one.fileno()]) for one in (asks, no)]
    assert told == [["127.0.0.1:53"], []]
