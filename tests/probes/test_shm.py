from __future__ import annotations

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host
from ncdiag.model import NodeFacts, Snapshot

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
