"""What the kernel's socket monitoring says of real connections, here and in another network namespace."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncdiag.hang import activity
from ncdiag.host import Host, Recorded
from ncdiag.processes import traffic
from ncdiag.processes.look import Options
from ncdiag.processes.sample import sample
from ncdiag.tree import MemoryTree
from tests.processes.programs import running

HEARS = """
import socket, sys, threading, time
size, every_s = int(sys.argv[1]), float(sys.argv[2])
server = socket.create_server(("127.0.0.1", 0))
here = socket.create_connection(server.getsockname())
there = server.accept()[0]
def speaks():
    while True: time.sleep(every_s); there.sendall(bytes(size))
threading.Thread(target=speaks, daemon=True).start()
def hears():
    print("ready", flush=True)
    while here.recv(1 << 20): pass
hears()
"""


def test_bytes_of_a_connection_count_both_ways() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as here,
        server.accept()[0] as there,
    ):
        inodes = [os.fstat(end.fileno()).st_ino for end in (here, there)]
        before = traffic.of(Host(), os.getpid())
        if not before:
            pytest.skip("this kernel has no socket monitoring (sock_diag)")
        here.sendall(bytes(5000))
        there.recv(5000, socket.MSG_WAITALL)
        time.sleep(0.2)
        after = traffic.of(Host(), os.getpid())
    assert [after[inode] - before[inode] for inode in inodes] == [5000, 5000]


def test_where_nothing_was_recorded_nothing_is_known() -> None:
    assert traffic.of(Recorded(MemoryTree()), 7) == {}


@pytest.mark.parametrize(("size", "every_s", "moves"), [(20000, 0.2, True), (100, 0.2, False), (20000, 600.0, False)])
def test_a_slow_download_moves_and_a_sign_of_life_does_not(
    tmp_path: Path, size: int, every_s: float, moves: bool
) -> None:
    with running(HEARS, str(size), str(every_s), folder=tmp_path) as (program, _):
        time.sleep(0.3)
        (state,) = sample(Host(), [program.pid], Options(window_s=1.0)).states
    assert state.progress is not None and state.call.get("hears")
    if all(one.bytes is None for one in state.sockets):
        pytest.skip("this kernel has no socket monitoring (sock_diag)")
    assert activity.moves_data(state.progress) is moves, state.progress


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="network namespaces need root and util-linux"
)
def test_another_network_namespace(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HEARS)
    start = f"ip link set lo up && exec {sys.executable} {tmp_path}/program.py 20000 0.2"
    with subprocess.Popen(["unshare", "--net", "sh", "-c", start], stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None and program.stdout.readline() == "ready\n"
            (state,) = sample(Host(), [program.pid], Options(window_s=1.0)).states
        finally:
            program.kill()
    if all(one.bytes is None for one in state.sockets):
        pytest.skip("this kernel has no socket monitoring (sock_diag), or the namespace may not be entered")
    assert state.progress is not None and state.progress.heard_bytes >= 20000
