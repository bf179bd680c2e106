"""Where a cause lies: not where it is told of."""

from __future__ import annotations

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
