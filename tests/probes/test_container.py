from __future__ import annotations

from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.tree import MemoryTree

from .judged import collected, judged
from .machines import Machine
from .machines import judged as machine_judged

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


def test_limits_that_were_not_read_are_not_none() -> None:
    hidden = Machine("a").file("/.dockerenv", "")
    (finding,) = machine_judged("container", hidden)
    assert finding.status.value == "unknown" and "could not be read" in finding.summary
    told = Machine("a").file("/.dockerenv", "").file("/proc/self/cgroup", "0::/\n")
    told.file("/sys/fs/cgroup/memory.max", "max\n").file("/sys/fs/cgroup/cpu.max", "max 100000\n")
    (finding,) = machine_judged("container", told)
    assert finding.status.value == "ok" and "memory not limited, CPUs not limited" in finding.summary


def test_a_limit_of_a_group_below_the_first_of_version_1() -> None:
    node = Machine("a").file("/proc/self/cgroup", "5:cpu,cpuacct:/slurm/job_7\n4:memory:/slurm/job_7\n")
    node.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    node.file("/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", f"{8 << 30}\n")
    node.file("/sys/fs/cgroup/cpu/slurm/job_7/cpu.cfs_quota_us", "150000\n")
    node.file("/sys/fs/cgroup/cpu/slurm/job_7/cpu.cfs_period_us", "100000\n")
    facts = collected("container", node.host()).facts["container"]
    assert (facts["memory_limit_bytes"], facts["cpu_limit"]) == (8 << 30, 1.5)
