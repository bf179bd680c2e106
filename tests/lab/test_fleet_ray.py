"""The fleet through a real Ray cluster of three namespace hosts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill import engines, rays
from ncdiag.drill.hosts import Lab, lab, usable
from ncdiag.drill.sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        engines.lacks("ray", "ClusterShell") is not None, reason=str(engines.lacks("ray", "ClusterShell"))
    ),
]

needs_nft = pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/usr/bin") is None, reason="nft is not installed")
needs_sshd = pytest.mark.skipif(
    shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
)
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


def reach(hosts: Lab, nodes: str, *extra: str, code: int = 0) -> list[dict[str, Any]]:
    argv = [
        engines.python(),
        "-m",
        "ncdiag",
        "reach",
        "--nodes",
        nodes,
        "--interface",
        "eth0",
        "--format",
        "json",
        *extra,
    ]
    done = hosts["gpu01"].run(*argv, env={**rays.ENVIRONMENT, "PYTHONPATH": str(ROOT)}, timeout_s=150)
    assert done.returncode == code, done.stderr + done.stdout
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def test_reach_through_ray_tests_its_own_ports(cluster: Cluster) -> None:
    hosts, _ = cluster
    (finding,) = reach(hosts, "ray", "--port", "29500")
    assert finding["status"] == "ok" and "3 of 3 pairs" in finding["summary"] and "ports 29500" in finding["summary"]
    assert "Ray's GCS, Ray's first manager port, Ray's second manager port" in finding["summary"], finding
    assert "one of Ray's worker ports 10002 to 19999" in finding["summary"]


@pytest.fixture(scope="module")
def ssh(cluster: Cluster) -> Ssh:
    """A way to the nodes that does not need Ray: a node whose way to the head is blocked starts no worker for a task."""
    made = Ssh(cluster[0])
    for name in ("gpu01", "gpu02", "gpu03"):
        made.serve(cluster[0][name])
    return made


@needs_nft
@needs_sshd
@pytest.mark.parametrize(
    "holder, source, what", [("gpu03", "gpu02", "Ray's first manager port"), ("gpu01", "gpu03", "Ray's GCS")]
)
def test_a_port_of_ray_that_is_dropped_one_way(cluster: Cluster, ssh: Ssh, holder: str, source: str, what: str) -> None:
    """New connections from one node only: Ray's own, which stand already, go on."""
    hosts, _ = cluster
    port = rays.PORT if "GCS" in what else min(_listening(hosts[holder], "raylet"))
    rule = f"ip saddr {hosts[source].address} tcp dport {port} tcp flags & (syn | ack) == syn drop;"
    hosts[holder].mount(
        f"nft flush ruleset; nft 'table inet lab {{ chain i {{ type filter hook input priority 0; {rule} }}; }}'"
    )
    try:
        (finding,) = reach(hosts, "ssh:gpu[01-03]", "--ssh-config", str(ssh.config), code=1)
    finally:
        hosts[holder].mount("nft flush ruleset")
    assert (finding["where"]["node"], finding["where"]["peer"]) == (source, holder)
    assert finding["cause"] == ("ray-gcs-unreachable" if "GCS" in what else "bootstrap-blocked-firewall")
    assert (
        f"{source} cannot reach {holder} on {what}, port {port}" in finding["summary"]
        and "dropped" in finding["summary"]
    )


def _listening(host: Any, program: str) -> list[int]:
    lines = host.run("ss", "-ltnpH").stdout.splitlines()
    return [int(line.split()[3].rpartition(":")[2]) for line in lines if f'"{program}"' in line]


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
