"""RDMA between nodes: findings from what agents tell, and the process with the ends when things go wrong."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ncdiag import payload
from ncdiag.fleet.remote import loader
from ncdiag.reach import agent, rdma, schedule, verbs
from ncdiag.reach.judge import judge
from ncdiag.reach.rdma import Broken, Ends, lanes_of
from ncdiag.reach.seen import Member, Run

PORT = {"device": "mlx5_0", "number": 1, "link_layer": "Ethernet", "gid_index": 3, "tc": 0, "sl": 0, "pkey": 0}
SECOND = {**PORT, "device": "mlx5_1"}
TIRED = "transport retry counter exceeded"


def run(
    outcome: Any, *, count: int = 4, ports: Any = None, why: dict[int, str] | None = None, limit: int | None = None
) -> Run:
    """`outcome(lane, source, target)`: word and detail of that direction. `ports`: node -> its RDMA ports."""
    own = [(ports or {}).get(number, [PORT]) for number in range(count)]
    members = [Member(f"gpu{n:02}", f"gpu{n:02}", f"192.0.2.{n + 1}", 1500, "eth0", 0.0, own[n]) for n in range(count)]
    tests: dict[int, list[list[Any]]] = {number: [] for number in range(count)}
    for number, pairs in enumerate(schedule.rounds(count, limit)):
        for low, high in pairs:
            for a, b in ((low, high), (high, low)):
                tests[a] += [[number, b, "tcp", "ok", "1.0 ms"], [number, b, "mtu", "ok", 1500]]
            for lane in range(len(lanes_of(own[low], own[high]))):
                tests[low] += [
                    [number, high, f"rdma {lane}", *outcome(lane, low, high)],
                    [number, high, f"rdma {lane} back", *outcome(lane, high, low)],
                ]
    reports = {n: {"port": 40000, "started": 0.0, "rdma": (why or {}).get(n), "tests": tests[n]} for n in range(count)}
    return Run("NCCL", members, {"start": 1.0, "slot_s": 1.0, "named": [], "ports": [40000], "between": None}, reports)


def well(lane: int, source: int, target: int) -> tuple[str, Any]:
    return "ok", None


def test_all_is_well() -> None:
    (finding,) = judge(run(well))
    assert finding.status.value == "ok" and "RDMA on 6 pairs" in finding.summary


def test_one_node_is_named_once_with_all_its_ports() -> None:
    both = {number: [PORT, SECOND] for number in range(4)}
    (finding,) = judge(run(lambda lane, a, b: ("dropped", TIRED) if 2 in (a, b) else ("ok", None), ports=both))
    assert (finding.where["node"], finding.cause) == ("gpu02", "ib-path-unreachable")
    assert "mlx5_0:1 (GID index 3), mlx5_1:1 (GID index 3)" in finding.summary and TIRED in finding.summary


def test_one_port_of_a_node_is_named_alone() -> None:
    both = {number: [PORT, SECOND] for number in range(4)}
    (finding,) = judge(run(lambda lane, a, b: ("dropped", TIRED) if lane == 1 and b == 2 else ("ok", None), ports=both))
    assert finding.where == {"node": "gpu02", "device": "mlx5_1"} and "to gpu02, from any node" in finding.summary


@pytest.mark.parametrize("code, layer, cause", [
    (22, "Ethernet", "roce-gid-wrong"), (61, "Ethernet", "roce-gid-wrong"), (110, "Ethernet", "ib-path-unreachable"),
    (22, "InfiniBand", "ib-qp-setup-failed"), (5, "Ethernet", "ib-qp-setup-failed"),
])  # fmt: skip
def test_why_a_queue_pair_does_not_come_up(code: int, layer: str, cause: str) -> None:
    """The node at fault says it, and so do its peers, with another error."""

    def outcome(lane: int, source: int, target: int) -> tuple[str, Any]:
        if 3 not in (source, target):
            return "ok", None
        own = {"why": "ibv_modify_qp to RTR: it", "code": code}
        return "setup", {"0" if source == 3 else "1": own}

    ports = {number: [{**PORT, "link_layer": layer}] for number in range(4)}
    (finding,) = judge(run(outcome, ports=ports))
    assert (finding.where["node"], finding.cause) == ("gpu03", cause) and "on gpu03" in finding.summary


def test_what_was_not_tried_is_never_ok() -> None:
    missing = "libibverbs.so.1: cannot open shared object file"
    found = list(judge(run(lambda lane, a, b: ("none", "x") if 1 in (a, b) else ("ok", None), why={1: missing})))
    assert [(one.status.value, one.where.get("node")) for one in found] == [("unknown", "gpu01"), ("ok", None)]
    assert missing in found[0].summary and "RDMA on 3 pairs" in found[1].summary
    (none,) = judge(run(well, ports={number: [] for number in range(4)}))
    assert "RDMA not tried: NCCL takes no RDMA port" in none.summary
    some = list(judge(run(well, ports={3: []})))
    assert [(one.status.value, one.where.get("node")) for one in some] == [("unknown", "gpu03"), ("ok", None)]


def test_coverage_is_said_with_and_without_faults() -> None:
    (fine,) = judge(run(well, count=40, limit=5))
    assert fine.observed["pairs"] < fine.observed["of"] == 780 and "--pairs all" in fine.summary
    found = list(judge(run(lambda lane, a, b: ("dropped", TIRED) if 7 in (a, b) else ("ok", None), count=40, limit=5)))
    assert [one.status.value for one in found] == ["fail", "ok"] and "of 780 pairs" in found[1].summary


def test_ports_are_paired_in_order() -> None:
    assert lanes_of([PORT, SECOND], [SECOND]) == [(PORT, SECOND), (SECOND, SECOND)]
    assert lanes_of([PORT], []) == []


def _library() -> bool:
    try:
        ctypes.CDLL(verbs.LIBRARY)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not _library(), reason=f"{verbs.LIBRARY} is not installed")
class TestEnds:
    """The real process and library, without a device."""

    def test_a_device_that_is_not_there(self) -> None:
        ends = Ends()
        try:
            (told,) = ends.ask("open", [{**PORT, "device": "none0"}])
        finally:
            ends.end()
        assert "why" in told and told["code"] > 0, told

    def test_one_that_dies_is_an_error_and_the_next_works(self) -> None:
        ends = Ends()
        try:
            ends.start()
            assert ends._process is not None
            os.kill(ends._process.pid, signal.SIGSTOP)
            with pytest.raises(Broken, match=r"no answer in 2\.2 s"):
                ends.ask("open", [])
            assert ends.ask("open", []) == []
        finally:
            ends.end()

    def test_the_start_waits_for_a_pair_that_is_tested_already(self) -> None:
        """A slow node's first round begins while it starts: two that read one pipe would take each other's answers."""
        ends = Ends()
        with ThreadPoolExecutor(1) as pool:
            with ends.held(1.0):
                starting = pool.submit(agent._ready, ends)
                assert ends.ask("open", []) == [] and not starting.done()
                first = ends._process
            assert starting.result(10) is None and ends._process is first
        ends.end()
        assert first is not None and first.returncode == -signal.SIGKILL

    def test_a_pair_that_is_still_tested_at_the_end_is_told_so(self) -> None:
        ends = Ends()
        one, other = socket.socketpair()
        with ThreadPoolExecutor(1) as pool, one, other:
            process = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # says nothing
            ends._process = process
            asked = pool.submit(rdma.test, ends, one, [(PORT, PORT)])
            while not ends._lock.locked():
                time.sleep(0.001)
            ends.end()
            ((what, outcome, why),) = asked.result(10)
        assert (what, outcome) == ("rdma", "none") and ("ended" in why or "over" in why), why
        assert process.returncode == -signal.SIGKILL
        with pytest.raises(Broken, match="the test is over"):
            ends.start()

    def test_it_starts_from_the_packed_zip_in_memory(self) -> None:
        """As on a node: the agent through the loader, whose files exist nowhere; it says whether it can test RDMA."""
        nodes = [{"address": f"127.0.0.{number}", "hostname": name, "mtu": 1500, "offset_s": 0.0, "rdma": [PORT], "services": {}}
                 for number, name in ((1, socket.gethostname()), (2, "elsewhere"))]  # fmt: skip
        request = {"token": "t", "nodes": nodes, "ports": [41012], "named": [], "limit": None, "between": None, "seed": 1,
                   "start": time.time(), "slot_s": 0.1}  # fmt: skip
        packed = payload.pack_call("ncdiag.reach.agent", request)
        done = subprocess.run(
            [sys.executable, "-S", "-I", "-c", loader()], input=packed, capture_output=True, timeout=60, check=True
        )
        told = json.loads(payload.unwrap("\n" + done.stdout.decode()))
        assert (told["number"], told["rdma"]) == (0, None), told
