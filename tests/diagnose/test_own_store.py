"""A store at a loopback address in a job of several nodes is named; on one node, and where the ranks found each other, it is right."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

CAUSE = "node-ip-wrong-interface"


def causes(files: Mapping[str, str]) -> list[Cause]:
    return of_streams(
        [Stream(name, iter([text.encode()]), text.encode()[:65536]) for name, text in files.items()]
    ).verdict.causes


def method(ranks: range, world: int, url: str = "tcp://localhost:46357") -> list[str]:
    return [
        f"INFO trainer.py: 112: Using Distributed init method: {url}, world_size: {world}, rank: {rank}"
        for rank in ranks
    ]


def named(files: Mapping[str, str]) -> bool:
    return any(cause.cause == CAUSE for cause in causes(files))


@pytest.mark.parametrize("url", ["tcp://localhost:46357", "tcp://127.0.0.1:29500", "tcp://[::1]:29500"])
def test_hosts_with_different_ranks_of_one_world(url: str) -> None:
    lines = [f"gpu07: {line}" for line in method(range(4), 8, url)] + [
        f"gpu08: {line}" for line in method(range(4, 8), 8, url)
    ]
    first = causes(
        {
            "job.log": "\n".join(
                [*lines, "slurmstepd: error: *** STEP 7.0 ON gpu07 CANCELLED AT 2026-01-02T10:00:00 ***", ""]
            )
        }
    )[0]
    assert (first.cause, first.confidence) == (CAUSE, "likely")
    assert first.where["peer"] == url[6:] and "gpu07, gpu08" in first.summary
    assert [item.line for item in first.evidence] == [1, 5]


def test_a_file_a_node() -> None:
    files = {f"node{node}.log": "\n".join(method(range(node * 4, node * 4 + 4), 8)) + "\n" for node in (0, 1)}
    assert causes(files)[0].cause == CAUSE


LATER = (
    "+ python -m torch.distributed.launch --nproc_per_node=8 --nnodes=2 --node_rank=1 --master_addr=localhost --master_port=1234 train.py",
    "+ torchrun --nnodes 2 --node-rank 1 --nproc-per-node 8 --master-addr 127.0.0.1 train.py",
    "[launch.py:145:main] nnodes=2, num_local_procs=8, node_rank=1\nMASTER_ADDR=127.0.0.1 MASTER_PORT=29500",
    "Namespace(config_file='a.yaml', dist_url='tcp://127.0.0.1:50152', machine_rank=1, num_gpus=8, num_machines=2)",
    "server_args=ServerArgs(tp_size=16, dist_init_addr='127.0.0.1:20000', nnodes=2, node_rank=1)",
    "export MASTER_ADDR=localhost NODE_RANK=3 NNODES=4",
    "accelerate launch --num_machines 2 --machine_rank 1 --main_process_ip 127.0.0.1 train.py",
)
TIMED_OUT = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (127.0.0.1, 29500).\n"


@pytest.mark.parametrize("said", LATER)
def test_a_later_node_looks_on_itself(said: str) -> None:
    first = causes({"node1.log": said + "\n" + TIMED_OUT})[0]
    assert (first.cause, first.confidence) == (CAUSE, "likely")


ELASTIC = """Starting elastic_operator with launch configs:
  entrypoint       : train.py
  min_nodes        : 2
  max_nodes        : 2
  nproc_per_node   : 8
  run_id           : none
  rdzv_backend     : c10d
  rdzv_endpoint    : localhost:29500
"""


@pytest.mark.parametrize("said", [ELASTIC, "MASTER_ADDR=localhost NNODES=2 NODE_RANK=0\n"])
def test_the_first_node_may_be_right_for_itself(said: str) -> None:
    found = {cause.cause: cause.confidence for cause in causes({"node0.log": said + TIMED_OUT})}
    assert found[CAUSE] == "possible"


STEPS = "".join(f"step {step}/100 | loss 2.{step}\n" for step in range(1, 9))
RIGHT = {
    "one node": {"job.log": "\n".join(f"gpu07: {line}" for line in method(range(8), 8)) + "\n"},
    "one node counted": {"job.log": "torchrun --nnodes=1 --node_rank=0 --master_addr=localhost\n"},
    "an engine each": {
        "job.log": "\n".join(f"{host}: {line}" for host in ("gpu07", "gpu08") for line in method(range(4), 4)) + "\n"
    },
    "a file a rank": {f"rank{rank}.log": "\n".join(method(range(rank, rank + 1), 4)) + "\n" for rank in range(4)},
    "a real address": {
        "job.log": "\n".join(f"gpu0{7 + rank // 4}: {method(range(rank, rank + 1), 8, 'tcp://192.0.2.7:29500')[0]}" for rank in range(8))
    },
    "a name that begins alike": {"job.log": "MASTER_ADDR=localhost-7.example NNODES=2 NODE_RANK=1\n"},
    "it trains": {"job.log": LATER[5] + "\n" + STEPS},
    "the ranks met": {
        "job.log": LATER[5] + "\n" + "".join(
            f"gpu07:{70 + rank}:{80 + rank} [0] NCCL INFO ncclCommInitRank comm 0x{rank}a rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x5 - Init COMPLETE\n"
            for rank in range(2)
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("files", RIGHT.values(), ids=RIGHT)
def test_where_loopback_is_right(files: Mapping[str, str]) -> None:
    assert not named(files)
