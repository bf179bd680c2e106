"""Pods and the nodes that they run on, beside NCCL's view of them as hosts."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

HEAD = "NAME     READY   STATUS    RESTARTS      AGE   IP            NODE     NOMINATED NODE   READINESS GATES"
POD = "{:<8} 1/1     Running   1 (3m ago)    6m    198.51.100.7  {:<8} <none>           <none>"


def log(via: str) -> list[str]:
    return [
        f"work-{pod}:{90 + pod}:9{pod} [0] NCCL INFO comm 0x5{pod} rank {pod * 2} nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0"
        for pod in range(2)
    ] + [
        f"work-0:90:90 [0] NCCL INFO Channel 00/0 : 0[0] -> 2[0] [send] via {via}",
        "# Avg bus bandwidth    : 21.4",
    ]


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, ""]).encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes


@pytest.mark.parametrize("via", ["NET/IB/0/GDRDMA", "NET/Socket/0"])
def test_two_pods_of_one_node(via: str) -> None:
    found = causes(HEAD, POD.format("work-0", "gpu-4"), POD.format("work-1", "gpu-4"), *log(via))
    isolated = next(cause for cause in found[:3] if cause.cause == "container-isolation")
    assert isolated.where.get("node") == "gpu-4" and "work-0, work-1" in isolated.summary


@pytest.mark.parametrize(
    "lines",
    [
        [HEAD, POD.format("work-0", "gpu-4"), POD.format("work-1", "gpu-5"), *log("NET/IB/0")],
        [HEAD, POD.format("work-0", "gpu-4"), POD.format("other-1", "gpu-4"), *log("NET/IB/0")],
        [HEAD, POD.format("work-0", "gpu-4"), POD.format("work-1", "gpu-4"), *log("P2P/IPC")],
        ["work-0 and work-1 of gpu-4", *log("NET/IB/0")],
    ],
    ids=["two nodes", "a pod of something else", "not over the network", "no table"],
)
def test_pods_that_are_well_placed(lines: list[str]) -> None:
    assert "container-isolation" not in [cause.cause for cause in causes(*lines)]
