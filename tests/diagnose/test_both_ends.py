"""Two ranks that each tell that the other one is gone: neither had ended. One who is accused and says nothing had."""

from __future__ import annotations

import pytest

from tests.diagnose.test_variants import causes_of

UP = "gpu0{me}:50{me}:500 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.{me}<0>\ngpu0{me}:50{me}:500 [0] NCCL INFO comm 0x55 rank {rank} nranks {n} cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc - Init COMPLETE\n"
RESET = "gpu0{me}:50{me}:540 [0] misc/socket.cc:432 NCCL WARN socketProgressOpt: Call to recv from 192.0.2.{peer}<40112> failed : Connection reset by peer\n"
CLOSED = "gpu0{me}:50{me}:541 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer gpu0{peer}.cluster.example<51234>\n"
FLUSH = "gpu0{me}:50{me}:541 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 192.0.2.{peer}<45211> with status=5 opcode=32601 len=0 vendor err 244 (Send) localGid ::ffff:192.0.2.{me} hca mlx5_0\n"
REMOTE = "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2027, remote process exited or there was a network error, NCCL version 2.20.5\n"
GLOO = "[rank{rank}]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Read error [192.0.2.{peer}]:51112: Connection reset by peer\n"


def said(me: int, peer: int, *lines: str, n: int = 2) -> str:
    return "".join(line.format(me=me, peer=peer, rank=me - 1, n=n) for line in lines)


def found(*texts: str, together: bool = False) -> list[tuple[str, str]]:
    logs = {"job": "".join(texts)} if together else {f"node{index}": text for index, text in enumerate(texts)}
    return [(cause.cause, cause.confidence) for cause in causes_of(logs)]


@pytest.mark.parametrize("together", [False, True], ids=["two files", "one file"])
@pytest.mark.parametrize(
    "lines, cause",
    [
        ((UP, RESET, REMOTE), "bootstrap-peer-unreachable"),
        ((UP, CLOSED, REMOTE), "bootstrap-peer-unreachable"),
        ((CLOSED, REMOTE), "bootstrap-peer-unreachable"),
        ((UP, FLUSH, CLOSED, REMOTE), "ib-path-unreachable"),
    ],
    ids=["reset", "closed", "warnings only", "flushed"],
)
def test_both_are_heard(lines: tuple[str, ...], cause: str, together: bool) -> None:
    causes = found(said(1, 2, *lines), said(2, 1, *lines), together=together)
    assert causes[0] == (cause, "possible")
    assert "rank-died" not in [name for name, _ in causes]


def test_whose_addresses_are_not_known_may_have_lost_a_third() -> None:
    causes = found(said(1, 2, GLOO), said(2, 1, GLOO))
    assert causes[0] == ("bootstrap-peer-unreachable", "possible") and ("rank-died", "possible") in causes


TOLD = "[rank{rank}]: Last error:\n[rank{rank}]: socketProgress: Connection closed by remote peer gpu0{peer}.cluster.example<51234>\n"


@pytest.mark.parametrize("together", [False, True], ids=["two files", "one file"])
def test_of_nodes_with_several_ranks_one_that_is_not_heard_may_have_ended(together: bool) -> None:
    """Only with NCCL's own lines is it known how many ranks there are."""
    one, two = (
        "".join(
            CLOSED.format(me=me, peer=peer).replace(":540 ", f":{540 + rank} ").replace(f"50{me}", f"5{rank}{me}")
            for rank in range(3)
        )
        for me, peer in ((1, 2), (2, 1))
    )
    causes = found(one, two, together=together)
    assert {("rank-died", "possible"), ("bootstrap-peer-unreachable", "possible")} <= set(causes)
    assert causes.index(("rank-died", "possible")) < causes.index(("bootstrap-peer-unreachable", "possible"))


def test_another_process_of_an_accused_host_is_quiet() -> None:
    quiet = "gpu02:777:780 [1] NCCL INFO Bootstrap : Using eth0:192.0.2.2<0>\n"
    causes = found(said(1, 2, CLOSED), said(2, 1, CLOSED) + quiet)
    assert causes[0] == ("rank-died", "possible") and ("bootstrap-peer-unreachable", "possible") in causes


def test_nodes_whose_ranks_only_tell_it_by_torch() -> None:
    one, two = (
        "".join(TOLD.format(rank=rank, peer=peer) for rank in ranks)
        for peer, ranks in ((2, range(2)), (1, range(2, 4)))
    )
    causes = found(one, two)
    assert {("rank-died", "possible"), ("bootstrap-peer-unreachable", "possible")} <= set(causes)


@pytest.mark.parametrize(
    "texts",
    [
        (said(1, 3, UP, CLOSED, n=3), said(2, 3, UP, CLOSED, n=3), said(3, 1, UP, n=3)),
        (said(1, 3, UP, CLOSED, n=3), said(2, 1, UP, CLOSED, n=3), said(3, 1, UP, n=3)),
        (said(1, 3, GLOO), said(2, 3, GLOO)),
    ],
    ids=["by both", "by one, who ended for it", "no log of it"],
)
def test_one_who_is_accused_says_nothing(texts: tuple[str, ...]) -> None:
    assert found(*texts)[0] == ("rank-died", "likely")


def test_what_is_known_to_have_ended_one_stays_the_cause() -> None:
    causes = found(said(1, 2, UP, CLOSED), said(2, 1, UP, CLOSED) + "Segmentation fault (core dumped)\n")
    assert causes[0][0] == "rank-died"
