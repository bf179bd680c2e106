from __future__ import annotations

import os
import resource
from typing import Any

import pytest

from ncdiag.host import Host
from ncdiag.model import Plan

from .judged import collected, judged

GOOD: dict[str, Any] = {
    "of": "this process",
    "memlock": None,
    "nofile": 65536,
    "nproc": None,
    "stack": 8 << 20,
    "ipc_lock": False,
    "rdma": True,
    "hard": {"memlock": None, "nofile": 65536, "nproc": None, "stack": None},
}


@pytest.mark.parametrize(
    ("change", "ranks", "setting", "status", "cause"),
    [
        ({}, None, "memlock", "ok", None),
        ({"memlock": 65536}, None, "memlock", "fail", "memlock-limit"),
        ({"memlock": 8 << 20}, None, "memlock", "fail", "memlock-limit"),
        ({"memlock": 1 << 30}, None, "memlock", "warn", "memlock-limit"),
        ({"memlock": 65536, "ipc_lock": True}, None, "memlock", "ok", None),
        ({"memlock": 65536, "ipc_lock": None}, None, "memlock", "unknown", None),
        ({"memlock": 65536, "rdma": False}, None, "memlock", "skip", None),
        ({"nofile": 1024}, None, "nofile", "warn", "open-files-limit"),
        ({"nofile": 20000, "hard": {**GOOD["hard"], "nofile": 20000}}, 144, "nofile", "fail", "open-files-limit"),
        ({"nofile": 1024}, 144, "nofile", "warn", "open-files-limit"),
        ({"nofile": 65536}, 144, "nofile", "ok", None),
        ({"nproc": 1000}, None, "nproc", "warn", "process-limit"),
        ({"stack": 64 << 10}, None, "stack", "warn", "process-limit"),
    ],
)
def test_table(change: dict[str, Any], ranks: int | None, setting: str, status: str, cause: str | None) -> None:
    findings = judged("limits", {"a": {**GOOD, **change}}, Plan(tp=ranks))
    (finding,) = [finding for finding in findings if finding.where.get("setting") == setting]
    assert (finding.status.value, finding.cause) == (status, cause)


def test_reads_this_process_and_a_named_one() -> None:
    facts = collected("limits", Host()).facts["limits"]
    assert facts["nofile"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    named = collected("limits", Host(pid=os.getpid())).facts["limits"]
    assert named["of"] == f"process {os.getpid()}" and named["nofile"] == facts["nofile"]
    assert "limits" in collected("limits", Host(pid=2**22 + 5)).errors
