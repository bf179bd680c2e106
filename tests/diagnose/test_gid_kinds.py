"""Packets that get no answer, and the GIDs that they go between."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

OLD = "gpu1:61:67 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 198.51.100.9<5192> with status=12 opcode=0 len=0 vendor err 129 (Send) localGid {0} remoteGids{1} hca mlx5_0"
NEW = "gpu1:61:67 [0] transport/net_ib/p2p.cc:95 NCCL WARN NET/IB: Got completion from peer 198.51.100.9<5192> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid {0} remoteGids {1} hca mlx5_0"


def causes(line: str) -> list[Cause]:
    raw = (line + "\n").encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes[:3]


@pytest.mark.parametrize("line", [OLD, NEW], ids=["2.21", "2.27"])
@pytest.mark.parametrize(
    ("gids", "told"),
    [
        (("fe80::a00:27ff:fe00:1", "fe80::a00:27ff:fe00:2"), True),
        (("::ffff:198.51.100.8", "fe80::a00:27ff:fe00:2"), True),
        (("::ffff:198.51.100.8", "::ffff:198.51.100.9"), False),
    ],
)
def test_link_local_gids_are_worth_a_look(line: str, gids: tuple[str, str], told: bool) -> None:
    found = causes(line.format(*gids))
    assert found[0].cause == "ib-path-unreachable"
    assert ("roce-gid-wrong" in [cause.cause for cause in found]) is told


def queue_pair(node: str, gid: str) -> str:
    return f"{node}:5877:5930 [0] NCCL INFO NET/IB: NCCL Dev 0 IbDev 0 Port 1 qpn 3902 mtu 5 query_ece={{supported=1, vendor_id=0x15b3, options=0x30000002, comp_mask=0x0}} GID {gid} fifoRkey=0x1f"


@pytest.mark.parametrize(
    ("gids", "wrong"),
    [
        (("3 (0/B6433C6FFFF0000)", "1 (80FE/F58C3EFEFF5CA10E)"), True),
        (("3 (0/B6433C6FFFF0000)", "3 (0/C6433C6FFFF0000)"), False),
        (("1 (80FE/F58C3EFEFF5CA10E)", "1 (80FE/F58C3EFEFF5CA10F)"), False),
    ],
)
def test_nodes_with_gids_of_two_kinds(gids: tuple[str, str], wrong: bool) -> None:
    found = causes("\n".join(queue_pair(f"pine{number}", gid) for number, gid in enumerate(gids)))
    assert (found[0].cause == "roce-gid-wrong" and found[0].where == {"node": "pine1"}) is wrong
