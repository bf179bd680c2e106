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


INSPECT = ['  {', '    "Id": "{}",', '    "HostConfig": {{"IpcMode": "private"}},', '    "Config": {{', '      "Hostname": "{}"', "    }}", "  }}"]  # fmt: skip
PS = "CONTAINER ID   IMAGE        COMMAND    CREATED      STATUS      PORTS   NAMES"


def inspected(*names: str) -> list[str]:
    return ["[", *(line.format(name) if "{}" in line else line for name in names for line in INSPECT), "]"]


def in_containers(one: str, two: str) -> list[str]:
    no_card = [f"{name}:1:9 [0] NCCL INFO NET/IB : No device found." for name in ("work-0", "work-1")]
    return [line.replace("work-0", one).replace("work-1", two) for line in [*no_card, *log("NET/Socket/0")]]


@pytest.mark.parametrize(
    "answer",
    [
        inspected("0a1b2c3d4e5f", "6a7b8c9d0e1f"),
        [PS, *(f"{name}   engine:1     serve      2 hours ago  Up 2 hours          {name[:3]}" for name in ("0a1b2c3d4e5f", "6a7b8c9d0e1f"))],
    ],
    ids=["inspect", "ps"],
)  # fmt: skip
def test_two_containers_of_one_docker_need_no_rdma(answer: list[str]) -> None:
    found = causes(*answer, *in_containers("0a1b2c3d4e5f", "6a7b8c9d0e1f"))
    assert (found[0].cause, found[0].confidence) == ("container-isolation", "likely")
    assert "net-fallback-slow" not in [cause.cause for cause in found]


@pytest.mark.parametrize(
    "answers",
    [[*inspected("0a1b2c3d4e5f"), *inspected("6a7b8c9d0e1f")], inspected("0a1b2c3d4e5f", "777777777777")],
    ids=["two machines", "something else"],
)
def test_containers_that_are_not_known_to_be_together(answers: list[str]) -> None:
    found = causes(*answers, *in_containers("0a1b2c3d4e5f", "6a7b8c9d0e1f"))
    assert "container-isolation" not in [cause.cause for cause in found]


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
