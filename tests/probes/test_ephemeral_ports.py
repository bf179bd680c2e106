from __future__ import annotations

import os
import socket
import time
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, judged


def facts(
    low: int | None = 32768,
    high: int | None = 60999,
    reserved: str | None = "",
    listening: tuple[int, ...] = (),
    pid: int | None = 7,
    environ: dict[str, int] | None = None,
    read: bool = True,
) -> dict[str, Any]:
    listeners = [
        {"address": "00000000", "port": port, "uid": 1000, "inode": port, "pid": pid, "command": "python3"}
        for port in listening
    ]
    return {
        "low": low,
        "high": high,
        "reserved": reserved,
        "listeners": listeners if read else None,
        "environ_ports": environ or {},
    }


@pytest.mark.parametrize(
    ("told", "ports", "expected"),
    [
        (facts(), (), ["ok"]),
        (facts(listening=(8000,)), (), ["ok"]),
        (facts(listening=(8000,)), (8000,), ["fail"]),
        (facts(listening=(29500,), environ={"MASTER_PORT": 29500}), (), ["fail"]),
        (facts(), (40000,), ["warn"]),
        (facts(reserved="30000,39990-40010"), (40000,), ["ok"]),
        (facts(low=60000, high=61000), (), ["warn"]),
        (facts(low=1024, high=65535), (6379, 8000), ["warn"]),
        (facts(low=None, high=None), (), ["unknown"]),
        (facts(read=False), (8000,), ["unknown"]),
    ],
)
def test_judging(told: dict[str, Any], ports: tuple[int, ...], expected: list[str]) -> None:
    assert [
        finding.status.value
        for finding in judged("ephemeral-ports", {"a": {"ephemeral-ports": told}}, Plan(ports=ports))
    ] == expected


def test_the_owner_is_named_and_the_remedy_can_be_typed() -> None:
    (seen,) = judged("ephemeral-ports", {"a": {"ephemeral-ports": facts(listening=(8000,))}}, Plan(ports=(8000,)))
    assert "python3 (pid 7)" in seen.summary and seen.cause == "port-in-use"
    (hidden,) = judged(
        "ephemeral-ports", {"a": {"ephemeral-ports": facts(listening=(8000,), pid=None)}}, Plan(ports=(8000,))
    )
    assert "user 1000" in hidden.summary and "ss -ltnp 'sport = :8000'" in (hidden.remedy or "")
    (inside,) = judged("ephemeral-ports", {"a": {"ephemeral-ports": facts(reserved="30000")}}, Plan(ports=(40000,)))
    assert inside.remedy == "sysctl -w net.ipv4.ip_local_reserved_ports=30000,40000"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_real_listener_is_found_with_its_owner(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((address, 0))
        except OSError as error:
            pytest.skip(f"no such family here: {error}")
        listening.listen()
        port = listening.getsockname()[1]
        begun = time.thread_time()
        told = collected("ephemeral-ports", Host(environment={"MASTER_PORT": str(port)}))
        assert time.thread_time() - begun < 0.4
    mine = next(listener for listener in told["listeners"] if listener["port"] == port)
    assert mine["pid"] == os.getpid() and told["environ_ports"] == {"MASTER_PORT": port}
    statuses = [finding.status.value for finding in judged("ephemeral-ports", {"a": {"ephemeral-ports": told}})]
    assert "fail" in statuses


def test_recorded_without_anything() -> None:
    told = collected("ephemeral-ports", Recorded(MemoryTree()))
    assert {finding.status.value for finding in judged("ephemeral-ports", {"a": {"ephemeral-ports": told}})} == {
        "unknown"
    }
