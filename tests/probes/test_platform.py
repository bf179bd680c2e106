from __future__ import annotations

import os
from typing import Any

from ncdiag.host import Host, Recorded
from ncdiag.tree import MemoryTree

from .judged import collected, judged, statuses

GOOD: dict[str, Any] = {
    "kernel": "6.8.0-45-generic",
    "system": "Ubuntu 24.04",
    "glibc": "glibc 2.39",
    "nvidia": "550.54.14",
    "nvidia_open": True,
    "ofed": None,
    "modules": {},
}


def test_equal_nodes_are_ok_and_an_outlier_is_named() -> None:
    assert statuses(judged("platform", {"a": GOOD, "b": GOOD})) == ["ok", "ok"]
    findings = judged("platform", {"a": GOOD, "b": GOOD, "c": {**GOOD, "nvidia": "535.1.1"}})
    (finding,) = [finding for finding in findings if finding.status.value == "warn"]
    assert (finding.where["node"], finding.observed, finding.expected) == ("c", "535.1.1", "550.54.14")


def test_driver_flavours() -> None:
    tree = MemoryTree()
    tree.add_file(
        "/proc/driver/nvidia/version",
        b"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n",
    )
    facts = collected("platform", Recorded(tree)).facts["platform"]
    assert (facts["nvidia"], facts["nvidia_open"]) == ("580.159.04", True)


def test_live() -> None:
    assert collected("platform", Host()).facts["platform"]["kernel"] == os.uname().release
