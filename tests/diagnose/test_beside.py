"""What stands beside, before or after: the log of another run says nothing about the one that is asked about, nor do beginnings and ends of lines that are cut."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

SERVES = """(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO:     192.0.2.9:41002 - "POST /v1/completions HTTP/1.1" 200 OK
(APIServer pid=1) INFO:     192.0.2.9:41004 - "POST /v1/completions HTTP/1.1" 200 OK
"""
TRAINS = """step 10 loss 2.31 lr 1e-4
step 20 loss 2.12 lr 1e-4
step 30 loss 2.04 lr 1e-4
Training complete
"""
STANDS = """[rank1]:[E304 05:06:07.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=91, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.
"""


def causes_of(**files: str) -> list[Cause]:
    return of_streams(Stream(name, iter([text.encode()]), text.encode()) for name, text in files.items()).verdict.causes


@pytest.mark.parametrize("good", [SERVES, TRAINS], ids=["serves", "trains"])
@pytest.mark.parametrize("first", ["good", "stands"])
def test_a_healthy_log_does_not_cover_another_one_that_stands(good: str, first: str) -> None:
    files = {"good": good, "stands": STANDS}
    names = sorted(files, key=lambda name: name != first)
    assert causes_of(good=good)[0].cause == "healthy"
    assert causes_of(stands=STANDS)[0].cause == "unresolved"
    assert causes_of(**{name: files[name] for name in names})[0].cause == "unresolved"


def test_what_the_same_log_outlived_is_over() -> None:
    assert causes_of(one=STANDS + SERVES, two=TRAINS)[0].cause == "healthy"


RING = """gpu1:71:88 [0] NCCL INFO ncclCommInitRankConfig comm 0x5f0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init START
gpu1:71:88 [0] NCCL INFO Channel 00/02 : 0 1
"""


def test_a_log_may_end_within_any_line() -> None:
    for end in range(RING.index("Channel"), len(RING)):
        assert causes_of(cut=RING[:end])[0].cause == "unresolved"


def test_a_list_of_guesses_whose_beginning_was_rotated_away_is_none() -> None:
    dead = """(raylet) The node with node id: 5e and address: 192.0.2.7 and node name: 192.0.2.7 has been marked dead because the detector has missed too many heartbeats from it. This can happen when a \t(1) raylet crashes unexpectedly (OOM, preempted node, etc.)
"""
    assert causes_of(whole=dead)[0].cause == "ray-node-lost"
    for start in range(dead.index(" This can"), dead.index("crashes")):
        assert causes_of(rotated=dead[start:])[0].cause == "unresolved"
