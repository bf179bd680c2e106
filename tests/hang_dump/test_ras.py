"""NCCL RAS: a real socket that speaks its protocol, as 2.24 (text only), 2.28 (JSON without a comma) and 2.29 answer."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ncdiag.hang.content import DumpContent
from ncdiag.model import RankState
from ncdiag.nccl import ras
from ncdiag.nccl.ras_text import parse_text

HEAD = """NCCL version 2.28.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""
BEHIND = (
    HEAD
    + """    0         1         2         4         8         8   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (5ec1a9be01d0c3f7) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation 64
  Rank 5 has launched up to operation 60 -- GPU 1 managed by process 810 on node 192.0.2.8

"""
)
SILENT = (
    HEAD
    + """    0         1         2         4         8         8   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process
  Process 812 on node 192.0.2.8 managing GPU 3

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 813 on node 192.0.2.8 managing GPUs 4,5

#0-0 (5ec1a9be01d0c3f7) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 812 on node 192.0.2.8

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)
STARTING = (
    HEAD
    + """    0         1         2         2         4         4   INIT,RUNNING  MISMATCH

Warnings
========

#0-0 (5ec1a9be01d0c3f7) MISMATCH
  Communicator ranks have different status
  2 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 400 on node 192.0.2.7
  Rank 1 -- GPU 1 managed by process 401 on node 192.0.2.7
  Rank 3 has status INIT -- [process information not found]
  Rank 2 has status INIT -- GPU 0 managed by process 402 on node 192.0.2.8
"""
)
REPORT = {
    "nccl_version": "2.29.2",
    "communicators_count": 1,
    "communicators": [
        {
            "hash": "0x5ec1",
            "size": 2,
            "ranks_count": 1,
            "missing_ranks_count": 1,
            "ranks": [
                {
                    "rank": 0,
                    "host": "192.0.2.7",
                    "pid": 70,
                    "cuda_dev": 0,
                    "nvml_dev": 0,
                    "status": {"init_state": 0},
                    "collective_counts": {"AllReduce": 9},
                }
            ],
            "missing_ranks": [
                {
                    "rank": 1,
                    "host": "192.0.2.8",
                    "pid": 71,
                    "cuda_dev": 0,
                    "nvml_dev": 0,
                    "status": {"unresponsive": True, "considered_dead": False},
                }
            ],
        }
    ],
}


@contextmanager
def service(text: str, report: str | None) -> Iterator[str]:
    """Listens as a process of a job does; without `report` it is too old for JSON."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            form = "text"
            for raw in self.rfile:
                line = raw.decode().strip().upper()
                if line.startswith("CLIENT PROTOCOL"):
                    self.wfile.write(b"SERVER PROTOCOL 2\n")
                elif line.startswith("TIMEOUT") or (line.startswith("SET FORMAT") and report is not None):
                    form = "json" if line.endswith("JSON") else form
                    self.wfile.write(b"OK\n")
                elif line in ("STATUS", "VERBOSE STATUS"):
                    self.wfile.write((report if form == "json" and report else text).encode())
                    return
                else:
                    self.wfile.write(b"ERROR: Unknown command\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_json_where_the_service_knows_it() -> None:
    with service("", json.dumps(REPORT)) as address:
        report = ras.ask(address)
    assert report["format"] == "json" and report["address"] == address
    assert report["communicators"] == REPORT["communicators"]


def test_json_of_2_28_lacks_a_comma_where_a_rank_is_missing() -> None:
    broken = json.dumps(REPORT, indent=1).replace(
        '"nvml_dev": 0,\n     "status": {\n      "unresponsive"',
        '"nvml_dev": 0\n     "status": {\n      "unresponsive"',
    )
    with pytest.raises(ValueError):
        json.loads(broken)
    with service("", broken) as address:
        assert ras.ask(address)["communicators"][0]["missing_ranks"][0]["status"]["unresponsive"] is True


@pytest.mark.parametrize("report", [None, "{ broken"])
def test_text_where_json_is_not_known_or_damaged(report: str | None) -> None:
    with service(BEHIND, report) as address:
        told = ras.ask(address)
    assert told["format"] == "text" and told["nccl_version"] == "2.28.3"
    assert told["communicators"][0]["hash"] == "5ec1a9be01d0c3f7"


def test_the_rank_that_is_behind_and_the_others() -> None:
    (communicator,) = parse_text(BEHIND)["communicators"]
    counts = {rank["rank"]: rank["collective_counts"]["AllReduce"] for rank in communicator["ranks"]}
    assert counts == {**dict.fromkeys(range(8), 64), 5: 60}
    assert (communicator["ranks"][5]["pid"], communicator["ranks"][5]["host"]) == (810, "192.0.2.8")


def test_ranks_and_processes_that_do_not_answer() -> None:
    report = parse_text(SILENT)
    (communicator,) = report["communicators"]
    assert [(rank["rank"], rank["pid"], rank["status"]["unresponsive"]) for rank in communicator["missing_ranks"]] == [
        (7, 812, True)
    ]
    assert [process["pid"] for process in report["silent"]] == [812]
    assert [(process["pid"], process["gpus"]) for process in report["dead"]] == [(813, "4,5")]
    assert report["timeouts"] == 2 and communicator["size"] == 8


def test_ranks_that_are_not_through_the_start() -> None:
    (communicator,) = parse_text(STARTING)["communicators"]
    assert {rank["rank"]: (rank["status"]["name"], rank["status"]["init_state"]) for rank in communicator["ranks"]} == {
        0: ("RUNNING", 0),
        1: ("RUNNING", 0),
        2: ("INIT", 7),
        3: ("INIT", 7),
    }
    assert communicator["ranks"][3]["pid"] is None


def test_errors_that_nccl_reports_itself() -> None:
    told = parse_text(
        HEAD
        + "\n#0-0 (ab12) ERROR\n  Asynchronous error(s) on 1 rank\n  Rank 3 reported remote process exited or there was "
        "a network error -- GPU 3 managed by process 9 on node 192.0.2.9\n"
    )
    (rank,) = told["communicators"][0]["ranks"]
    assert rank["status"]["async_error"] == "remote process exited or there was a network error"


def test_of_a_healthy_job_nothing_is_told() -> None:
    report = parse_text(HEAD + "    0         2         2         4         8        16   RUNNING  OK\n")
    assert report["communicators"] == [] and report["communicators_count"] == 2


def test_a_job_that_works_moves_between_two_reports() -> None:
    later = json.loads(json.dumps(REPORT))
    assert not ras.moved(REPORT, later)
    later["communicators"][0]["ranks"][0]["collective_counts"]["AllReduce"] = 10
    assert ras.moved(REPORT, later)


def test_counts_that_move_accuse_nobody() -> None:
    states = [RankState(40 + rank, "gpu01", "script", rank, 8, state="S") for rank in range(8)]
    report = parse_text(BEHIND)
    assert [row.rank for row in DumpContent(states, [{**report, "moved": False}]).verdict().culprits] == [5]
    assert not DumpContent(states, [{**report, "moved": True}]).verdict().culprits


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("localhost:28028", ("localhost", 28028)),
        ("0.0.0.0:4000", ("localhost", 4000)),
        ("[::]:4000", ("localhost", 4000)),
        ("[2001:db8::7]:28028", ("2001:db8::7", 28028)),
        ("gpu07", ("gpu07", 28028)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert ras.split_address(address) == expected


@pytest.mark.parametrize("address", ["", "a:b:c", "host:port"])
def test_odd_addresses(address: str) -> None:
    if address:
        with pytest.raises(ras.RasError):
            ras.split_address(address)
    else:
        assert ras.split_address(address) == ("localhost", 28028)


def test_what_is_no_ras_service_is_said() -> None:
    class Web(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            self.wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ras.RasError, match="not an NCCL RAS service"):
            ras.ask(f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_a_refused_connection_and_a_silent_one_end_in_time() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        address = f"127.0.0.1:{server.server_address[1]}"  # listens, accepts nothing
        with pytest.raises(ras.RasError, match="says nothing"):
            ras.ask(address, timeout_s=0.3)
    with pytest.raises(ras.RasError, match="refused"):
        ras.ask(address)


def test_a_stopped_process_on_the_shared_port_is_passed_by() -> None:
    """All processes of a user listen on one port; the first connection goes to one that never answers."""
    taken = []

    class Ras(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            taken.append(self.client_address)
            if len(taken) == 1:
                time.sleep(ras.HELLO_S + 1)
                return
            for line in self.rfile:
                if line.strip() in (b"STATUS", b"VERBOSE STATUS"):
                    self.wfile.write(b'{"communicators": []}')
                    return
                self.wfile.write(b"SERVER PROTOCOL 2\n" if line.startswith(b"CLIENT") else b"OK\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Ras) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        began = time.monotonic()
        assert ras.ask(f"127.0.0.1:{server.server_address[1]}")["format"] == "json"
        assert time.monotonic() - began < ras.HELLO_S + 1
        server.shutdown()


SERVER = """
import socket
server = socket.create_server(("127.0.0.1", 28028)); print("ready", flush=True)
while True:
    link, _ = server.accept()
    with link, link.makefile("rb") as stream:
        for line in stream:
            if b"STATUS" in line: link.sendall(b'{"communicators": []}'); break
            link.sendall(b"SERVER PROTOCOL 2\\n" if b"CLIENT" in line else b"OK\\n")
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare for a network namespace"
)
def test_a_service_in_another_network_namespace() -> None:
    start = ["unshare", "--net", "sh", "-c", f'ip link set lo up && exec {sys.executable} -c "$0"', SERVER]
    program = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        if not program.stdout.readline():
            pytest.skip("no network namespace can be made here")
        mine = os.readlink("/proc/self/ns/net")
        assert ras.ask(netns=f"/proc/{program.pid}/ns/net")["communicators"] == []
        assert os.readlink("/proc/self/ns/net") == mine == os.readlink("/proc/thread-self/ns/net")
    finally:
        program.kill()
        program.communicate()
