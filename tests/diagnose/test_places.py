"""Where a cause lies: not where it is told of."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream

PEERS = [
    "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [192.0.2.7]:46487: Connection reset by peer.",
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [192.0.2.7]:44229: Connection reset by peer.",
]
TORCHRUN = [
    "E1130 01:21:55.827000 22422 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 (pid: 22459) of binary: /opt/venv/bin/python3",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
]


def causes(*lines: str) -> dict[str, dict[str, object]]:
    raw = "".join(f"{line}\n" for line in lines).encode()
    return {cause.cause: cause.where for cause in of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes}


def test_who_tells_of_its_peers_end_is_not_the_one_that_died() -> None:
    where = causes(*PEERS)["rank-died"]
    assert where == {"peer": "192.0.2.7"}


def test_torchrun_says_which_rank_was_killed() -> None:
    where = causes(*PEERS, *TORCHRUN)["host-memory-oom"]
    assert where == {"local_rank": 1, "pid": 22459}


def _timed_out(rank: int, operation: str = "ALLREDUCE", number: int = 77) -> str:
    return (
        f"[rank{rank}]:[E810 06:02:50.410220915 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
    )


def test_a_rank_that_waits_in_vain_is_not_where_the_cause_lies() -> None:
    found = causes(_timed_out(1), _timed_out(2))
    assert found["unresolved"] == {} and "rank" not in found["rank-stuck-outside-collective"]


def test_a_worker_that_waits_for_the_others_is_not_the_place() -> None:
    found = causes("(Worker_TP1 pid=77, ip=192.0.2.7) RuntimeError: worker died or was killed while executing a task")
    assert not {"rank", "pid", "node"} & found["unresolved"].keys()


def test_the_few_that_went_another_way_are_the_place() -> None:
    lines = [_timed_out(rank, "_REDUCE_SCATTER_BASE" if rank == 6 else "ALLREDUCE") for rank in range(8)]
    assert causes(*lines)["collective-desync"]["rank"] == "6"
    assert "rank" not in causes(lines[5], lines[6])["collective-desync"], "of two, neither is the odd one"


def test_the_rank_that_the_flight_recorders_analysis_names() -> None:
    line = "error msg: Culprit rank 6; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: 'nccl:all_reduce' does not match found collective type: 'nccl:_all_gather_base'"
    assert causes(line)["collective-desync"]["rank"] == 6


PEERS_SAID = {
    "gpu07:1:2 [0] misc/socket.cu:379 WARN Call to connect timeout : Connection refused": None,
    "gpu07:1:2 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out": None,
    "[W socket.cpp:464] [c10d] The client socket has failed to connect to [gpu08.example]:29500 (errno: 111 - Connection refused).": "gpu08.example",
    "connect to 192.0.2.8 port 22: Connection refused": "192.0.2.8",
    "NCCL WARN socketStartConnect: Connect to 192.0.2.8<29500> failed : Connection refused": "192.0.2.8",
    "dial: connect to head:6379: Connection refused": "head",
    "connect to [2001:db8::7]:29500 failed: Connection timed out": "[2001:db8::7]",
}


@pytest.mark.parametrize(("line", "peer"), PEERS_SAID.items())
def test_a_word_of_the_sentence_is_no_peer(line: str, peer: str | None) -> None:
    assert causes(line)["unresolved"].get("peer") == peer


def test_places_of_two_processes_are_not_mixed() -> None:
    """Rank 3 runs out of memory; rank 5 of another node does, later. Neither is `rank 3 on the node of rank 5`."""
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.60 GiB. GPU 3 has a total capacity of 79.10 GiB of which 5.12 MiB is free."
    found = causes(f"[rank3]: {memory}", f"(Worker rank=5 pid=77, ip=192.0.2.7) {memory}")
    assert found["gpu-memory-exhausted"] == {"rank": 3}
