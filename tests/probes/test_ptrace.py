from __future__ import annotations

import os
from typing import Any

import pytest

from ncdiag.host import Host

from .judged import collected, judged, statuses

GOOD = {"scope": 0, "capable": True, "uid": 0, "target": None}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, "ok"),
        ({"scope": 1}, "ok"),
        ({"scope": 3}, "warn"),
        ({"scope": 1, "capable": False}, "warn"),
        ({"scope": 0, "capable": False, "uid": 1000}, "ok"),
        ({"scope": None, "capable": False}, "unknown"),
        ({"capable": None}, "unknown"),
        ({"target": "readable", "scope": 3}, "ok"),
        ({"target": "Permission denied"}, "warn"),
    ],
)
def test_table(change: dict[str, Any], status: str) -> None:
    findings = judged("ptrace", {"a": {**GOOD, **change}})
    assert statuses(findings) == [status]
    assert (findings[0].cause == "ptrace-denied") == (status == "warn")


def test_own_process_may_be_traced_and_a_gone_one_not() -> None:
    assert collected("ptrace", Host(pid=os.getpid())).facts["ptrace"]["target"] == "readable"
    assert collected("ptrace", Host(pid=2**22 + 5)).facts["ptrace"]["target"] != "readable"
