"""What a drill may leave behind: processes by a mark in their environment, namespaces and records by the drill's pid, folders."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from ncdiag.drill import remains

ROOT = Path(__file__).parent.parent.parent
NCDIAG = [sys.executable, "-m", "ncdiag"]
MARK = "NCDIAG_TEST_DRILL"


def environment(mark: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), MARK: mark, "COLUMNS": "110"}


def marked(mark: str) -> list[int]:
    """Processes that the drill with this mark has started, itself included."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def record_of(pid: int, timeout_s: float = 20.0) -> remains.Record:
    """The record of a drill's hosts, once they are up."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for record in remains.records():
            if record.owner == pid and record.hosts:
                return record
        time.sleep(0.05)
    raise AssertionError(f"process {pid} has made no hosts within {timeout_s:.0f} s")


def left(record: remains.Record, mark: str, patience_s: float = 15.0) -> list[str]:
    """What there still is of it after a while; empty when nothing."""
    deadline = time.monotonic() + patience_s
    while True:
        found = [f"process {pid}" for pid in marked(mark)]
        found += remains.namespaces(record.prefix)
        found += [str(path) for path in (record.path, Path(record.folder)) if path.exists()]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)
