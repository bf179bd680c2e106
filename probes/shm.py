"""/dev/shm is there and large enough.

NCCL's shared-memory transport and vLLM's message queues between the ranks of one node live in /dev/shm; the 64 MiB that
Docker gives by default are less than one queue of vLLM takes (160 MiB for its shared-memory broadcast).

Source: NCCL user guide, troubleshooting, "Shared memory"; vLLM's own check `Insufficient space in /dev/shm`.
"""

from __future__ import annotations

import errno
from typing import Iterator, Optional, TypedDict

from ncdiag.host import Absent, Host
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, warn

NEEDED_BYTES = 160 << 20
"""Bytes that vLLM asks for when it starts two or more local ranks (its message: "160 MiB required")."""

COMFORTABLE_BYTES = 1 << 30
"""Bytes from which eight local ranks with NCCL's and vLLM's segments fit without a thought."""


class Facts(TypedDict):
    """/dev/shm as statvfs tells it."""

    total_bytes: int
    free_bytes: int
    inodes_free: Optional[int]
    """None: its file system does not count them."""
    there: bool
    """False: looked for, and there is none; the numbers are then 0."""


def collect(host: Host) -> Facts:
    try:
        space = host.space("/dev/shm")
    except Absent as error:
        if error.errno != errno.ENOENT:
            raise
        return {"total_bytes": 0, "free_bytes": 0, "inodes_free": None, "there": False}
    return {
        "total_bytes": space.total_bytes,
        "free_bytes": space.free_bytes,
        "inodes_free": space.inodes_free if space.inodes else None,
        "there": True,
    }


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, facts in snapshot.each(PROBE.id):
        total, free = facts["total_bytes"] >> 20, facts["free_bytes"] >> 20
        seen = {"total_mib": total, "free_mib": free}
        if facts.get("inodes_free") == 0:
            yield fail(
                "/dev/shm takes no more files: its inodes are used up",
                node,
                source="statvfs /dev/shm",
                observed={"inodes_free": 0},
                cause="shm-too-small",
                remedy="remove stale files in /dev/shm (ls /dev/shm | head), or remount it with more: mount -o remount,nr_inodes=0 /dev/shm",
            )
        elif facts["free_bytes"] < NEEDED_BYTES:
            has = f"has {free} MiB free of {total} MiB" if facts.get("there", True) else "does not exist"
            yield fail(
                f"/dev/shm {has}; two ranks on a node need {NEEDED_BYTES >> 20} MiB",
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
