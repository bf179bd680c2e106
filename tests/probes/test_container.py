from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.tree import MemoryTree

from .judged import collected, judged

GOOD: dict[str, Any] = {
    "runtime": "docker",
    "capabilities": ["IPC_LOCK"],
    "memory_limit_bytes": None,
    "memory_used_bytes": 1 << 30,
    "cpu_limit": None,
    "cpus_allowed": 8,
    "own_network": False,
    "sources": {"memory": "/sys/fs/cgroup/memory.max"},
}


@pytest.mark.parametrize(
    ("change", "plan", "cause"),
    [
        ({}, Plan(), None),
        ({"cpu_limit": 4.0}, Plan(tp=8), "cpu-starved"),
        ({"cpu_limit": 16.0}, Plan(tp=8), None),
        ({"cpu_limit": 8.0}, Plan(tp=8, pp=2, nodes=4), None),
        ({"memory_limit_bytes": 2 << 30, "memory_used_bytes": 2040 << 20}, Plan(), "host-memory-oom"),
        ({"memory_limit_bytes": 64 << 30}, Plan(), None),
    ],
)
def test_table(change: dict[str, Any], plan: Plan, cause: str | None) -> None:
    assert cause in {finding.cause for finding in judged("container", {"a": {**GOOD, **change}}, plan)} | {None}
    assert ({finding.cause for finding in judged("container", {"a": {**GOOD, **change}}, plan)} - {None}) == (
        {cause} - {None}
    )


def test_no_container_is_skipped_not_ok() -> None:
    (finding,) = judged("container", {"a": {**GOOD, "runtime": None, "sources": {}}})
    assert finding.status.value == "skip"


def test_both_kinds_of_cgroup_and_a_veth() -> None:
    two, one = MemoryTree(), MemoryTree()
    for tree in (two, one):
        tree.add_file("/proc/self/status", b"CapEff:\t00000000a80425fb\nCpus_allowed_list:\t0-3,8\n")
        tree.add_file("/sys/class/net/eth0/ifindex", b"2\n")
        tree.add_file("/sys/class/net/eth0/iflink", b"57\n")
    two.add_file("/proc/self/cgroup", b"0::/\n")
    two.add_file("/sys/fs/cgroup/memory.max", b"1073741824\n")
    two.add_file("/sys/fs/cgroup/cpu.max", b"150000 100000\n")
    one.add_file("/proc/self/cgroup", b"4:memory:/docker/abc\n")
    one.add_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", b"9223372036854771712\n")
    one.add_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", b"-1\n")
    one.add_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", b"100000\n")
    newer = collected("container", Recorded(two)).facts["container"]
    older = collected("container", Recorded(one)).facts["container"]
    assert (newer["memory_limit_bytes"], newer["cpu_limit"], newer["cpus_allowed"], newer["own_network"]) == (
        1 << 30,
        1.5,
        5,
        True,
    )
    assert (older["memory_limit_bytes"], older["cpu_limit"], older["runtime"]) == (None, None, "docker")


def test_live() -> None:
    assert collected("container", Host()).facts["container"]["cpus_allowed"] >= 1
