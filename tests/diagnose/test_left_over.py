"""A port that is taken, and tables of sockets and processes that show who holds it."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

TAKEN = [
    "[W1 socket.cpp:764] [c10d] The server socket has failed to bind to [::]:29444 (errno: 98 - Address already in use).",
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29444, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    "$ ss -ltnp 'sport = :29444'",
    "State  Recv-Q Send-Q Local Address:Port  Peer Address:Port Process",
    'LISTEN 0      2048               *:29444            *:*    users:(("python3",pid=8801,fd=53))',
    "$ ps -eo pid,ppid,etime,cmd",
]
HEAD, HEAD_OF_USERS = "    PID    PPID     ELAPSED CMD", "USER         PID    PPID     ELAPSED CMD"
SAME = [f"   {8801 + rank}       1    20:11:48 python3 train.py --depth 12" for rank in range(4)]
NUMBERED = [
    f"anna     {8801 + rank}       1    20:11:48 /opt/env/bin/python3 -u train.py --local_rank={rank} --depth 12"
    for rank in range(4)
]
SERVICE = ["   8801       1    20:11:48 /usr/bin/python3 -m notebook --port 29444"]
SERVICES = [*SERVICE, "   8900       1    20:11:48 /usr/bin/python3 -m exporter"]
WORKERS = [f"   {8801 + rank}    8790    20:11:48 python3 train.py --depth 12" for rank in range(4)]


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, ""]).encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes


@pytest.mark.parametrize("table", [[HEAD, *SAME], [HEAD_OF_USERS, *NUMBERED]], ids=["same", "numbered"])
def test_ranks_that_outlived_their_launcher(table: list[str]) -> None:
    found = causes(*TAKEN, *table)
    assert (found[0].cause, found[0].where.get("pid")) == ("stale-process", 8801)
    assert "4 processes" in found[0].summary
    assert ("port-in-use", "likely") in [(cause.cause, cause.confidence) for cause in found]


@pytest.mark.parametrize("table", [SERVICE, SERVICES, WORKERS], ids=["a service", "two services", "ranks at work"])
def test_a_holder_that_may_be_well(table: list[str]) -> None:
    """A service has process 1 for its parent, too; ranks with their launcher are of a job that runs."""
    found = causes(*TAKEN, HEAD, *table)
    assert (found[0].cause, found[0].confidence) == ("port-in-use", "likely")
