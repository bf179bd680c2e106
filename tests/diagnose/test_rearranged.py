"""Logs whose lines do not stand as they were printed."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import Diagnosis, of_streams
from ncdiag.logs.intake import Stream
from ncdiag.logs.rearranged import SIZE_LIMIT, arranged


def read(raw: bytes) -> Diagnosis:
    return of_streams([Stream("a", iter([raw]), raw[:65536])])


ENDED = """2030-04-09T01:30:40.770Z\tstep 7560 | loss 2.131 | 1.87 s/it
2030-04-09T01:57:12.018Z\tstep 8400 | loss 2.120 | 1.88 s/it
2030-04-09T02:11:08.440Z\tstep 8810 | loss 2.114 | 1.91 s/it
2030-04-09T02:17:30.207Z\tkernel: Memory cgroup out of memory: Killed process 4018 (pt_data_worker) total-vm:7139kB
2030-04-09T02:17:31.115Z\t[rank19]: Traceback (most recent call last):
2030-04-09T02:17:31.116Z\t[rank19]:   File "/app/train.py", line 73, in handler
2030-04-09T02:17:31.117Z\t[rank19]: RuntimeError: DataLoader worker (pid 2214) is killed by signal: Killed.
"""


@pytest.mark.parametrize("labels", ["", '{namespace="train",source="t-2"}\t'])
def test_newest_line_first(labels: str) -> None:
    """Read as it stands, the steps of the training would follow the death, and it had been outlived."""
    lines = [line.replace("\t", "\t" + labels, 1) for line in ENDED.splitlines()]
    forwards, backwards = (read("".join(line + "\n" for line in text).encode()) for text in (lines, lines[::-1]))
    for found in (forwards, backwards):
        assert (found.verdict.causes[0].cause, found.verdict.causes[0].confidence) == ("host-memory-oom", "sure")
    evidence = backwards.verdict.causes[0].evidence[0]
    assert evidence.line == 4 and evidence.text == lines[3]
    assert {item.line for item in backwards.verdict.causes[0].secondary} == {1}


def test_entries_of_several_lines_stay_in_order() -> None:
    """An export keeps the lines of one message together, and only the first has its time."""
    entries = [f"2030-04-09T02:0{minute}:00Z step {minute}0 | loss 2.1 | 1.9 s/it\n" for minute in range(5)]
    entries.append(
        '2030-04-09T02:06:00Z Traceback (most recent call last):\n  File "/app/t.py", line 7, in f\n    g()\nValueError: bad shard\n'
    )
    (cause, *_) = read("".join(reversed(entries)).encode()).verdict.causes
    assert cause.cause == "engine-exception" and "bad shard" in cause.summary
    assert [item.line for item in cause.evidence] == [4]


OPERATION = ("ALLREDUCE, NumelIn=33554432, NumelOut=33554432", "_ALLGATHER_BASE, NumelIn=1048576, NumelOut=4194304")
WIDE = [
    f"[rank{rank}]:[E1103 22:51:07.41{rank}87 ProcessGroupNCCL.cpp:{text}"
    for rank in range(4)
    for text in (
        f"632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9127, OpType={OPERATION[rank == 3]}, Timeout(ms)=1200000) ran for 1200041 milliseconds before timing out.",
        f"2268] [PG ID 1 PG GUID 1(dp) Rank {rank}]  failure detected by watchdog at work sequence id: 9127 PG status: last enqueued work: 9127, last completed work: 9126",
    )
]


@pytest.mark.parametrize("width", [72, 80, 100, 132])
def test_lines_that_a_terminal_broke(width: int) -> None:
    broken = [line[at : at + width] for line in WIDE for at in range(0, len(line), width)]
    (cause, *_) = read("".join(line + "\n" for line in broken).encode()).verdict.causes
    assert (cause.cause, cause.where.get("rank")) == ("collective-desync", "3"), cause.summary
    assert cause.evidence[0].line == 1


@pytest.mark.parametrize(
    "lines",
    [
        [f"gpu{n % 4}:7:9 [0] NCCL INFO Channel {n:02}/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA" for n in range(30)],
        [f"   {2 ** (n % 9):>12} {2 ** (n % 9) // 4:>13}     float     sum      -1    31.2    0.00    0.00      0" for n in range(30)],
        [f"2030-01-02T03:04:{n:02}Z worker {n:02} has loaded shard {n:03} of all, in so and so many seconds" for n in range(30)],
        [f"rank{n:02}: a line of one program, as wide as any other line that it prints, and each of them whole" for n in range(30)],
        [f"gpu{n % 4:02}:1004:2004 [4] include/socket.h:88 NCCL WARN Net : Connection closed by peer {n:02}" if n % 2 else f"Jan 02 03:04:{n:02} gpu04 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid={10000 + n}, name=python3" for n in range(30)],
        [f"abc{n:02} " + "word " * 18 + "x" if n % 2 else f"short line {n}" for n in range(40)],
        [("alpha beta gamma delta " * 9)[:100] if n % 2 else "beta gamma" for n in range(40)],
        [f"2030-01-02 03:04:{n:02} INFO stage {n:02} of the pipe has taken its part of the data and hands them on to the others" if n % 2 else f"memory {n} GiB" for n in range(40)],
        [(f"2030-01-02 03:04:{n:02} INFO {word} " + "a line that a viewer cut off somewhere behind " * 2)[:90] if n % 3 else "of all" for n, word in enumerate(["map", "reduce", "load", "store"] * 9)],
    ],
    ids=["NCCL", "a table", "stamped", "one program", "two programs", "long and short", "cut", "stamped long and plain short", "cut at a width"],
)  # fmt: skip
def test_lines_of_one_length_are_whole(lines: list[str]) -> None:
    raw = "".join(line + "\n" for line in lines).encode()
    assert arranged(raw, iter([raw]))[1] is None


def test_a_merged_log_that_steps_back_stays_as_it_is() -> None:
    raw = b"".join(b"2030-01-02T03:%02d:00Z line\n" % minute for minute in (9, 8, 7, 6, 10, 5))
    chunks, numbers = arranged(raw, iter([raw]))
    assert numbers is None and b"".join(chunks) == raw


def test_what_is_too_long_to_be_put_in_order_is_read_as_it_stands() -> None:
    head = b"".join(b"2030-01-02T03:%02d:00Z line\n" % minute for minute in range(59, 0, -1))
    rest = b"x" * (SIZE_LIMIT // 4)
    chunks, numbers = arranged(head, iter([head, *[rest] * 5]))
    assert numbers is None and sum(map(len, chunks)) == len(head) + 5 * len(rest)
