from __future__ import annotations

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host
from ncdiag.model import NodeFacts, Snapshot
from tests.probes.machines import Machine

SHM = registry.load().chosen(["shm"])


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "status"),
    [
        (64, 64, "fail"),
        (4096, 100, "fail"),
        (512, 512, "warn"),
        (16384, 16000, "ok"),
    ],
)
def test_sizes(total_mib: int, free_mib: int, status: str) -> None:
    node = NodeFacts("a", {"shm": {"total_bytes": total_mib << 20, "free_bytes": free_mib << 20}})
    (finding,) = check(Snapshot({"a": node}), SHM)
    assert finding.status.value == status
    assert (finding.cause == "shm-too-small") == (status != "ok")


def test_reads_the_live_machine() -> None:
    node = collect(Host(), SHM.sources(SHM))
    assert node.facts["shm"]["total_bytes"] > 0


@pytest.mark.parametrize(
    ("told", "status", "words"),
    [
        (2, "fail", "does not exist"),
        (13, "unknown", "could not be read"),
        (None, "unknown", "was not recorded"),
        ({"total_bytes": 1 << 34, "free_bytes": 1 << 34, "inodes": 9, "inodes_free": 0}, "fail", "inodes"),
        ({"total_bytes": 1 << 34, "free_bytes": 1 << 34, "inodes": 0, "inodes_free": 0}, "ok", "16384 MiB free"),
    ],
)
def test_what_a_recorded_machine_was_told(told: object, status: str, words: str) -> None:
    machine = Machine("a")
    machine.meta["space"] = {} if told is None else {"/dev/shm": told}
    (finding,) = check(Snapshot({"a": collect(machine.host(), SHM.sources(SHM))}), SHM)
    assert finding.status.value == status and words in finding.summary
