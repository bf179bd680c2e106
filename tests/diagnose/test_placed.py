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


def bridge(*addresses: str, interface: str = "eth0") -> list[str]:
    return [
        line
        for rank, address in enumerate(addresses)
        for line in (
            f"c{rank}:61:61 [0] NCCL INFO Bootstrap: Using {interface}:{address}<0>",
            f"c{rank}:61:97 [0] NCCL INFO Failed to open libibverbs.so[.1]",
            f"c{rank}:61:97 [0] NCCL INFO Using network Socket",
            f"c{rank}:61:97 [0] NCCL INFO comm 0x5{rank} rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0",
            f"c{rank}:61:97 [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 4f00{rank} commId 0x7e - Init COMPLETE",
        )
    ]


def test_containers_on_one_docker_bridge() -> None:
    found = next(
        cause for cause in causes(*bridge("172.20.0.2", "172.20.0.3"))[:3] if cause.cause == "container-isolation"
    )
    assert found.confidence == "possible" and "172.20.0.2, 172.20.0.3" in found.summary


@pytest.mark.parametrize(
    "lines",
    [
        bridge("172.20.0.2", "172.21.0.3"),
        bridge("172.31.0.2", "172.31.0.3"),
        bridge("172.20.14.2", "172.20.77.3"),
        bridge("172.20.0.2", "172.20.0.3", interface="ens5"),
    ],
    ids=["two bridges", "a cloud's own", "a network of machines", "an interface of a machine"],
)
def test_addresses_that_no_one_bridge_has(lines: list[str]) -> None:
    assert "container-isolation" not in [cause.cause for cause in causes(*lines)]
