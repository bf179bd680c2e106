"""Counters of RDMA devices and of an Ethernet interface, read twice."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

ASKED = "ops@wren:~$ for i in 1 2; do for d in mlx5_0 mlx5_1; do p=/sys/class/infiniband/$d/ports/1/counters; echo $d rcv=$(cat $p/port_rcv_data) xmit=$(cat $p/port_xmit_data); done; echo ens9 rx=$(cat /sys/class/net/ens9/statistics/rx_bytes) tx=$(cat /sys/class/net/ens9/statistics/tx_bytes); sleep 5; done"
GB = 10**9


def fallback(*lines: str) -> Cause | None:
    raw = "\n".join([*lines, ""]).encode()
    causes = of_streams([Stream("facts.txt", iter([raw]), raw)]).verdict.causes
    return next((cause for cause in causes if cause.cause == "net-fallback-slow"), None)


def readings(into: int, out: int, rdma: int) -> list[str]:
    """Bytes that the interface moves in, and out, and words that each RDMA device moves, between two readings."""
    return [
        line
        for turn in (0, 1)
        for line in (
            *(f"mlx5_{index} rcv={7000 + turn * rdma} xmit={9000 + turn * rdma}" for index in (0, 1)),
            f"ens9 rx={88 * GB + turn * into} tx={77 * GB + turn * out}",
            f"10:02:0{turn * 5}",
        )
    ]


def paths(into: int, out: int, rdma: int) -> list[str]:
    return [
        f"/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:7000 -> {7000 + rdma}",
        f"/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:7000 -> {7000 + rdma}",
        f"/sys/class/net/ens9/statistics/rx_bytes:{GB} -> {GB + into}",
        f"/sys/class/net/ens9/statistics/tx_bytes:{GB} -> {GB + out}",
    ]


@pytest.mark.parametrize("lines", [[ASKED, *readings(9 * GB, 10 * GB, 40)], paths(9 * GB, 10 * GB, 40)], ids=["a loop", "paths"])  # fmt: skip
def test_sockets_carry_it(lines: list[str]) -> None:
    found = fallback(*lines)
    assert found is not None and (found.confidence, found.where) == ("likely", {"interface": "ens9"})
    assert "9.0 GB" in found.summary and "mlx5_0" in found.summary


@pytest.mark.parametrize(
    ("into", "out", "rdma"),
    [(9 * GB, 10 * GB, GB), (9 * GB, GB // 10, 40), (GB // 9, GB // 9, 40)],
    ids=["RDMA moves, too", "one way, as files go", "little"],
)
def test_other_traffic(into: int, out: int, rdma: int) -> None:
    assert fallback(ASKED, *readings(into, out, rdma)) is None
    assert fallback(*paths(into, out, rdma)) is None


def test_two_nodes_are_no_two_readings() -> None:
    one, two = readings(9 * GB, 10 * GB, 40)[:3], readings(9 * GB, 10 * GB, 40)[4:7]
    again = ASKED.replace("wren", "lark")
    assert fallback(ASKED, *one, again, *two) is None
    assert fallback(*(f"wren: {line}" for line in one), *(f"lark: {line}" for line in two)) is None
