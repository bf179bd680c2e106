"""The fleet through a real Ray cluster of three namespace hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill import engines, rays
from ncdiag.drill.hosts import Lab, lab, usable

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        engines.lacks("ray", "ClusterShell") is not None, reason=str(engines.lacks("ray", "ClusterShell"))
    ),
]

Cluster = tuple[Lab, dict[str, subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with lab("gpu01", "gpu02", "gpu03") as hosts:
        yield hosts, rays.start(hosts, "gpu01", "gpu02", "gpu03")


def preflight(hosts: Lab, nodes: str, *extra: str, code: tuple[int, ...] = (0, 1, 3)) -> Any:
    done = hosts["gpu01"].run(
        engines.python(),
        "-m",
        "ncdiag",
        "preflight",
        "--nodes",
        nodes,
        "--format",
        "json",
        *extra,
        env={**rays.ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        timeout_s=150,
    )
    assert done.returncode in code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


def _is_raylet(pid: str) -> bool:
    try:
        return "raylet/raylet" in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[0]
    except FileNotFoundError:
        return False


def test_every_node_answers_from_its_own_place(cluster: Cluster) -> None:
    hosts, _ = cluster
    result = preflight(hosts, "ray", "--timeout", "40")
    assert sorted(result["nodes"]) == ["gpu01", "gpu02", "gpu03"]
    assert not [finding for finding in result["findings"] if finding["probe"] == "node"]
    versions = [
        finding for finding in result["findings"] if finding["probe"] == "engine-versions" and finding["status"] == "ok"
    ]
    assert any("2 nodes" in finding["summary"] or "3 nodes" in finding["summary"] for finding in versions), versions


def test_address_can_be_given_and_a_wrong_one_is_one_line(cluster: Cluster) -> None:
    hosts, _ = cluster
    assert len(preflight(hosts, f"ray:{hosts['gpu01'].address}:{rays.PORT}", "--only", "shm")["nodes"]) == 3
    message = preflight(hosts, f"ray:{hosts['gpu02'].address}:6399", "--only", "shm", code=(2,))
    assert "cannot reach the Ray cluster" in message and "Traceback" not in message


def test_ray_facts_clocks_and_a_plan_that_cannot_be_placed(cluster: Cluster) -> None:
    """Each raylet was told of one GPU."""
    hosts, _ = cluster
    result = preflight(hosts, "ray", "--only", "ray-cluster", "--only", "clock-offset", "--tp", "2", "--pp", "4")
    by_probe = {finding["probe"]: finding for finding in result["findings"] if finding["status"] in ("ok", "fail")}
    assert by_probe["ray-cluster"]["cause"] == "ray-resources-infeasible", result["findings"]
    assert "needs 8 GPUs, Ray has 3 on 3 nodes" in by_probe["ray-cluster"]["summary"]
    assert by_probe["clock-offset"]["status"] == "ok" and "3 nodes" in by_probe["clock-offset"]["summary"]
    fits = preflight(hosts, "ray", "--only", "ray-cluster", "--tp", "3")
    assert "Ray has" not in str(fits["findings"])


def test_reach_through_ray(cluster: Cluster) -> None:
    hosts, _ = cluster
    argv = [
        engines.python(),
        "-m",
        "ncdiag",
        "reach",
        "--nodes",
        "ray",
        "--interface",
        "eth0",
        "--port",
        str(rays.PORT),
        "--format",
        "json",
    ]
    done = hosts["gpu01"].run(*argv, env={**rays.ENVIRONMENT, "PYTHONPATH": str(ROOT)}, timeout_s=150)
    assert done.returncode == 0, done.stderr + done.stdout
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["status"] == "ok" and "3 of 3 pairs" in finding["summary"]


def test_node_that_hangs_is_named_and_the_others_complete(cluster: Cluster) -> None:
    """Its raylet is stopped: Ray still counts the node as alive."""
    hosts, _ = cluster
    raylets = [
        int(pid)
        for pid in hosts["gpu03"].run("ip", "netns", "pids", hosts["gpu03"].netns).stdout.split()
        if _is_raylet(pid)
    ]
    assert len(raylets) == 1
    os.kill(raylets[0], signal.SIGSTOP)
    try:
        started = time.monotonic()
        result = preflight(hosts, "ray", "--only", "shm", "--timeout", "10")
        assert time.monotonic() - started < 45
    finally:
        os.kill(raylets[0], signal.SIGCONT)
    lost = [finding["where"]["node"] for finding in result["findings"] if finding["probe"] == "node"]
    assert lost == ["gpu03"]
    assert {finding["where"]["node"] for finding in result["findings"] if finding["probe"] == "shm"} == {
        "gpu01",
        "gpu02",
    }
