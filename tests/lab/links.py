"""Faults of one host's link or CPU in the namespace lab."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil

from ncdiag.drill.hosts import LabHost

CPU = Path("/sys/fs/cgroup/cpu")
UNIFIED = Path("/sys/fs/cgroup")


def throttle(host: LabHost, mbit: int) -> None:
    """No more than this leaves the host (tbf)."""
    host.mount(f"tc qdisc add dev eth0 root tbf rate {mbit}mbit burst 256kb latency 50ms")


def lose(host: LabHost, percent: int) -> None:
    """This share of what the host sends is lost in the switch. (Dropped on the host itself, TCP would know at once that it was not sent.)"""
    switch = _switch(host)
    port = host.netns[: -len(_number(host))] + "o" + _number(host)
    rules = (
        f'add table netdev lossy; add chain netdev lossy in {{ type filter hook ingress device "{port}" priority 0; }}; '
        f"add rule netdev lossy in numgen random mod 100 < {percent} drop"
    )
    _nft(switch, rules)


def hole(host: LabHost, size: int, spared: LabHost) -> None:
    """The switch passes no packet of more than this many bytes between the host and others than `spared`, and tells nobody."""
    port = host.netns[: -len(_number(host))] + "o" + _number(host)
    rules = "add table bridge hole; add chain bridge hole forward { type filter hook forward priority 0; }"
    for side in ("iifname", "oifname"):
        others = f"ip saddr != {spared.address} ip daddr != {spared.address}"
        rules += f'; add rule bridge hole forward {side} "{port}" {others} meta length > {size} drop'
    _nft(_switch(host), rules)


def _nft(netns: str, rules: str) -> None:
    done = subprocess.run(["ip", "netns", "exec", netns, "nft", rules], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nft: {done.stderr.strip()}")


def _number(host: LabHost) -> str:
    return host.address.rpartition(".")[2]


def _switch(host: LabHost) -> str:
    return host.netns[: -len(_number(host))] + "sw"


@contextlib.contextmanager
def slow_cpu(host: LabHost, percent: int) -> Iterator[None]:
    """Whatever the host has started, and what that starts, gets this share of one CPU."""
    group = (CPU if CPU.is_dir() else UNIFIED) / f"nclab-{os.getpid()}"
    group.mkdir()
    kind = "-t cgroup -o cpu" if CPU.is_dir() else "-t cgroup2"
    under = CPU if CPU.is_dir() else UNIFIED
    tmpfs = "mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir /sys/fs/cgroup/cpu; " if CPU.is_dir() else ""
    host.mount(f"{tmpfs}mount {kind} cgroup {under}")  # the namespace has a /sys of its own
    try:
        if CPU.is_dir():
            (group / "cpu.cfs_quota_us").write_text(str(percent * 1000))
        else:
            (group / "cpu.max").write_text(f"{percent * 1000} 100000")
        for process in host.processes:
            for member in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                (group / "cgroup.procs").write_text(str(member.pid))
        yield
    finally:
        for process in host.processes:  # they live on outside
            with contextlib.suppress(psutil.NoSuchProcess, OSError):
                for member in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
                    (group.parent / "cgroup.procs").write_text(str(member.pid))
        with contextlib.suppress(OSError):
            group.rmdir()


def iperf(source: LabHost, target: LabHost, seconds: float = 2.0) -> float:
    """Gbit/s of one TCP stream, as iperf3 counts what has arrived."""
    server = target.start("iperf3", "-s", "-1")
    try:
        for _ in range(20):
            done = source.run("iperf3", "-c", target.address, "-t", f"{seconds:g}", "-J")
            told = json.loads(done.stdout)
            if "end" in told and "sum_received" in told["end"]:
                return float(told["end"]["sum_received"]["bits_per_second"]) / 1e9
        raise RuntimeError(told.get("error", done.stderr))
    finally:
        server.terminate()
        server.wait()
