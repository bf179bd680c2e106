"""ncdiag bandwidth over real sshd and real gloo between namespace hosts: bad ones are found and told apart, nothing stays behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from ncdiag.drill import engines
from ncdiag.drill.hosts import Lab, lab, usable, wait_for
from ncdiag.drill.sshd import Ssh

from . import links

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.timeout(600),
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(engines.lacks("torch") is not None, reason=str(engines.lacks("torch"))),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
    ),
    pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/usr/bin") is None, reason="nftables is not installed"),
]
GOOD = ("gpu01", "gpu02")
BAD = ("tbf03", "nft04", "cpu05", "off06")
Cluster = tuple[Lab, Ssh]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two healthy hosts, and one throttled, one lossy, one with a slow CPU, one dead."""
    with lab("head", *GOOD, *BAD) as hosts:
        ssh = Ssh(hosts)
        for name in (*GOOD, *BAD[:3]):
            ssh.serve(hosts[name])
        links.throttle(hosts["tbf03"], 200)
        links.lose(hosts["nft04"], 3)
        with links.slow_cpu(hosts["cpu05"], 10):
            yield hosts, ssh


def argv(ssh: Ssh, nodes: Sequence[str], *extra: str) -> list[str]:
    where = ["--nodes", "ssh:" + ",".join(nodes), "--ssh-config", str(ssh.config), "--python", engines.python()]
    return [sys.executable, "-m", "ncdiag", "-q", "bandwidth", *where, "--factor", "16", "--format", "json", *extra]


def bandwidth(cluster: Cluster, nodes: Sequence[str], *extra: str, code: int = 0) -> Any:
    hosts, ssh = cluster
    done = hosts["head"].run(*argv(ssh, nodes, *extra), env={"PYTHONPATH": str(ROOT)}, timeout_s=500)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout) if done.stdout else done.stderr


def ranks_left(hosts: Lab) -> list[int]:
    """Processes in the lab's network namespaces that hold a piece of the run."""
    found = []
    for host in hosts.hosts.values():
        pids = subprocess.run(
            ["ip", "netns", "pids", host.netns], capture_output=True, text=True, check=True
        ).stdout.split()
        for pid in map(int, pids):
            try:
                if any("ncdiag.bandwidth.node" in word for word in psutil.Process(pid).cmdline()):
                    found.append(pid)
            except psutil.NoSuchProcess:
                continue
    return found


def test_two_hosts_and_iperf_over_the_same_link(cluster: Cluster, record_property: Any) -> None:
    """Where the link is what limits, gloo's busbw is what iperf3 gets over it."""
    report = bandwidth(
        cluster, ("gpu01", "tbf03"), "--min", "1M", "--max", "16M", "--seconds", "1", "--isolate", "never"
    )
    row = max(report["rows"], key=lambda row: row["size_bytes"])
    hosts, _ = cluster
    reference = links.iperf(hosts["tbf03"], hosts["gpu01"])
    ratio = row["busbw_gbytes_s"] * 8 / reference
    record_property("busbw_over_iperf3", ratio)
    print(f"busbw {row['busbw_gbytes_s'] * 8:.4f} Gbit/s, iperf3 {reference:.4f} Gbit/s, ratio {ratio:.3f}")
    assert row["wrong"] == 0
    assert 0.85 < ratio < 1.15


def test_the_bad_hosts_are_found_and_told_apart(cluster: Cluster) -> None:
    report = bandwidth(
        cluster,
        (*GOOD, *BAD),
        "--min",
        "4K",
        "--max",
        "64K",
        "--seconds",
        "0.5",
        "--isolate",
        "always",
        "--pair-size",
        "4M",
        code=1,
    )
    blamed = {
        finding["where"]["node"]: finding for finding in report["findings"] if finding["status"] not in ("ok", "skip")
    }
    assert set(blamed) == set(BAD), json.dumps(report["findings"], indent=1)
    assert "does not take part" in blamed["off06"]["summary"] and blamed["off06"]["status"] == "unknown"
    assert "what it sends is limited" in blamed["tbf03"]["summary"]
    assert "packets" in blamed["nft04"]["summary"]
    assert blamed["cpu05"]["cause"] == "cpu-starved"
    assert report["isolation"]["rounds"] <= report["isolation"]["most_rounds"]
    assert wait_for(lambda: not ranks_left(cluster[0]), 30), ranks_left(
        cluster[0]
    )  # the slow one takes its time to end


def test_a_host_that_large_packets_do_not_reach_is_named() -> None:
    """Small messages pass, so that every pair comes together; whatever fills a packet gets stuck."""
    with lab("head", "gpu01", "gpu02", "mtu03") as hosts:
        ssh = Ssh(hosts)
        for name in ("gpu01", "gpu02", "mtu03"):
            ssh.serve(hosts[name])
        command = [*argv(ssh, ("gpu01", "gpu02", "mtu03")), "--pair-timeout", "6", "--timeout", "80"]
        command += ["--min", "64", "--max", "1M", "--factor", "128", "--seconds", "0.2"]
        links.hole(hosts["mtu03"], 1300, hosts["head"])
        done = hosts["head"].run(*command, env={"PYTHONPATH": str(ROOT)}, timeout_s=300)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    named = [finding for finding in report["findings"] if "node" in finding["where"]]
    assert [finding["where"]["node"] for finding in named] == ["mtu03"], json.dumps(report, indent=1)
    assert "mtu03 is in every pair that got stuck" in named[0]["summary"]
    assert not any("--isolate auto" in (finding.get("remedy") or "") for finding in report["findings"])


@pytest.mark.parametrize("after_s", [0.5, 3.0, 6.0])
def test_nothing_stays_after_ctrl_c(cluster: Cluster, after_s: float) -> None:
    hosts, ssh = cluster
    process = subprocess.Popen(
        hosts["head"].argv(argv(ssh, GOOD, "--max", "16M", "--seconds", "30")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin"},
    )  # fmt: skip
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert wait_for(lambda: not ranks_left(hosts), 15), ranks_left(hosts)


def test_nothing_stays_when_ncdiag_is_killed(cluster: Cluster) -> None:
    hosts, ssh = cluster
    process = subprocess.Popen(
        hosts["head"].argv(argv(ssh, GOOD, "--max", "16M", "--seconds", "30")),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin:/usr/sbin"},
    )  # fmt: skip
    assert wait_for(lambda: len(ranks_left(hosts)) >= 4, 40)
    process.kill()
    process.wait()
    assert wait_for(lambda: not ranks_left(hosts), 15), ranks_left(hosts)
