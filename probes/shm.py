"""/dev/shm is there and large enough.

NCCL's shared-memory transport and vLLM's message queues between the ranks of one node live in /dev/shm; the 64 MiB that
Docker gives by default are less than one queue of vLLM takes (160 MiB for its shared-memory broadcast).

Source: NCCL user guide, troubleshooting, "Shared memory"; vLLM's own check `Insufficient space in /dev/shm`.
"""

from __future__ import annotations

from typing import Iterator, TypedDict

from ncdiag.host import Host
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, warn

NEEDED_BYTES = 160 << 20
"""Bytes that vLLM asks for when it starts two or more local ranks (its message: "160 MiB required")."""

COMFORTABLE_BYTES = 1 << 30
"""Bytes from which eight local ranks with NCCL's and vLLM's segments fit without a thought."""


class Facts(TypedDict):
    """/dev/shm as statvfs tells it."""

    total_bytes: int
    free_bytes: int


def collect(host: Host) -> Facts:
    space = host.space("/dev/shm")
    return {"total_bytes": space.total_bytes, "free_bytes": space.free_bytes}


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        total, free = facts["total_bytes"] >> 20, facts["free_bytes"] >> 20
        seen = {"total_mib": total, "free_mib": free}
        if facts["free_bytes"] < NEEDED_BYTES:
            yield fail(
                f"/dev/shm has {free} MiB free of {total} MiB; two ranks on a node need {NEEDED_BYTES >> 20} MiB",
                node,
                source="statvfs /dev/shm",
                observed=seen,
                expected={"free_mib": NEEDED_BYTES >> 20},
                cause="shm-too-small",
                remedy="start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium: Memory on "
                "/dev/shm), or remove stale files in /dev/shm",
            )
        elif facts["free_bytes"] < COMFORTABLE_BYTES:
            yield warn(
                f"/dev/shm has only {free} MiB free of {total} MiB",
                node,
                source="statvfs /dev/shm",
                observed=seen,
                expected={"free_mib": COMFORTABLE_BYTES >> 20},
                cause="shm-too-small",
                remedy="give the container at least 1 GiB: --shm-size=16g or --ipc=host",
            )
        else:
            yield ok(f"/dev/shm has {free} MiB free of {total} MiB", node, source="statvfs /dev/shm", observed=seen)


PROBE = Probe("shm", "/dev/shm is large enough for NCCL and vLLM", judge, collect)
