"""The folders that Ray and the engine write to have room.

Ray refuses new objects and tasks when the file system of its temporary folder is over 95 % full, and its sockets must fit into
107 characters; vLLM, torch and Triton write compiled kernels below the home folder; a full /tmp ends a start-up with errors
that speak of something else.

Source: statvfs; Ray's `local_fs_capacity_threshold` (0.95) and its message "file system is over 95% full"; unix(7) sun_path.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, unknown, warn

FULL = 0.95
"""Share from which Ray stops to create objects."""

FREE_BYTES = 1 << 30
"""Free bytes below which compiled kernels and logs of one start may not fit."""

SOCKET_PATH = 107
"""Longest path of a Unix socket."""

RAY_SOCKET = "/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""What Ray appends to its temporary folder for its longest socket."""


class Folder(TypedDict):
    """One folder, or its nearest parent that exists."""

    path: str
    use: str
    exists_at: Optional[str]
    total_bytes: Optional[int]
    free_bytes: Optional[int]
    inodes: Optional[int]
    inodes_free: Optional[int]
    error: Optional[str]


def collect(host: Host) -> List[Folder]:
    try:
        environment = host.environ()
    except HostError:
        environment = {}
    return [_folder(host, path, use) for path, use in _wanted(environment).items()]


def _wanted(environment: Dict[str, str]) -> Dict[str, str]:
    """Folder -> what it is for."""
    home = environment.get("HOME") or "/root"
    cache = environment.get("XDG_CACHE_HOME") or home + "/.cache"
    temporary = environment.get("TMPDIR") or "/tmp"
    return {
        environment.get("RAY_TMPDIR", "") or "/tmp/ray": "Ray's sessions",
        temporary: "temporary files",
        environment.get("VLLM_CACHE_ROOT") or cache + "/vllm": "vLLM's compiled kernels",
        environment.get("HF_HOME") or cache + "/huggingface": "downloaded models",
    }


def _folder(host: Host, path: str, use: str) -> Folder:
    at = path
    while not host.exists(at) and at not in ("/", ""):
        at = at.rpartition("/")[0] or "/"
    try:
        space = host.space(at)
    except HostError as error:
        return Folder(
            path=path,
            use=use,
            exists_at=None,
            total_bytes=None,
            free_bytes=None,
            inodes=None,
            inodes_free=None,
            error=error.reason,
        )
    return Folder(
        path=path,
        use=use,
        exists_at=at,
        total_bytes=space.total_bytes,
        free_bytes=space.free_bytes,
        inodes=space.inodes,
        inodes_free=space.inodes_free,
        error=None,
    )


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    for node, folders in snapshot.each(PROBE.id):
        for folder in folders:
            yield _room(node, folder)
            if folder["use"] == "Ray's sessions" and len(folder["path"] + RAY_SOCKET) > SOCKET_PATH:
                yield fail(
                    "Ray's folder %s is too long: its sockets would have %d of at most %d characters"
                    % (folder["path"], len(folder["path"] + RAY_SOCKET), SOCKET_PATH),
                    node,
                    source="RAY_TMPDIR",
                    observed=folder["path"],
                    cause="env-unknown-or-invalid",
                    remedy="use a short folder: ray start --temp-dir=/tmp/ray",
                    device=folder["path"],
                )


def _room(node: str, folder: Folder) -> Finding:
    source, path, total, free = "statvfs " + folder["path"], folder["path"], folder["total_bytes"], folder["free_bytes"]
    if total is None or free is None:
        return unknown(
            "the space for %s in %s could not be read: %s" % (folder["use"], path, folder["error"]),
            node,
            source=source,
            device=path,
        )
    used = 1 - free / total if total else 1.0
    unit, power = ("GiB", 30) if total >= 1 << 30 else ("MiB", 20)
    shown = "%s (%s) has %.1f of %.1f %s free" % (path, folder["use"], free / 2**power, total / 2**power, unit)
    if folder["inodes"] and folder["inodes_free"] == 0:
        return fail(
            shown + " but no inode",
            node,
            source=source,
            observed=folder["inodes_free"],
            unit="free inodes",
            cause="disk-full",
            remedy="remove small files there",
            device=path,
        )
    remedy = "free space there, or put it elsewhere (Ray: --temp-dir, vLLM: VLLM_CACHE_ROOT, models: HF_HOME, others: TMPDIR)"
    if free < 64 << 20 or (used >= FULL and folder["use"] == "Ray's sessions"):
        return fail(
            "%s: %d %% full" % (shown, used * 100),
            node,
            source=source,
            observed=free,
            unit="bytes free",
            expected=FREE_BYTES,
            cause="disk-full",
            remedy=remedy,
            device=path,
        )
    if free < FREE_BYTES or used >= FULL:
        return warn(
            "%s: %d %% full" % (shown, used * 100),
            node,
            source=source,
            observed=free,
            unit="bytes free",
            expected=FREE_BYTES,
            cause="disk-full",
            remedy=remedy,
            device=path,
        )
    return ok(shown, node, source=source, observed=free, unit="bytes free", device=path)


PROBE = Probe("temp-space", "Folders that Ray and the engine write to have room", judge, collect)
