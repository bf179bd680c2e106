"""What follows from a cause is what is known to come after it in the same job; the rest was only seen, too."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ncdiag.explain import Says, Signal
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.logs.related import follows
from ncdiag.logs.stamps import later_s, stamp
from ncdiag.model import Cause, Evidence
from ncdiag.nccl.log import NcclLog
from ncdiag.report.causes import causes_as_text


@pytest.mark.parametrize(
    ("one", "other", "seconds"),
    [
        ("2026-03-01 10:00:05,250 ERROR a", "2026-03-01 10:00:00,000 INFO b", 5.25),
        ("2026-03-01T00:00:01Z a", "2026-02-28T23:59:59Z b", 2.0),
        ("2026-03-01T12:00:01.5+02:00 a", "2026-03-01T10:00:00Z b", 1.5),
        ("Mar  1 10:00:05 node7 kernel: NVRM: Xid", "2026-03-01 10:00:01 b", 4.0),
        ("[Sun Mar  1 10:00:05 2026] mlx5_core", "2026/03/01 10:00:01 b", 4.0),
        ("ERROR 03-01 10:00:05 [core.py:390] a", "[rank1]:[E301 10:00:01.5 ProcessGroupNCCL.cpp:632] b", 3.5),
        ("E0301 10:00:05.000000 140219 api.py:869] a", "[2026-03-01 10:00:06 TP0] b", -1.0),
        ("10:00:05 a", "10:00:01 b", 4.0),
        ("10:00:05 a", "2026-03-01 10:00:01 b", None),
        ("2026-03-01T10:00:05Z a", "2026-03-01 10:00:01 b", None),
    ],
)
def test_how_much_later(one: str, other: str, seconds: float | None) -> None:
    first, second = stamp(one), stamp(other)
    assert first is not None and second is not None
    assert later_s(first, second) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    "text",
    [
        "Xid (PCI:0000:b3:00): 79",
        "[1084456.074562] NVRM: Xid",
        "link/ether 02:42:10:00:00:01",
        "Loading shards: 50%|##   | 1/2 [01:02:03<01:02:03]",
        "2026-13-45 10:00:00 no day",
        "the job ran for all the time that it had been given, which was 01:00:00",
    ],
)
def test_no_time(text: str) -> None:
    assert stamp(text) is None


def first(files: Mapping[str, list[str]]) -> Cause:
    texts = {name: "\n".join(lines).encode() + b"\n" for name, lines in files.items()}
    return of_streams([Stream(name, iter([text]), text) for name, text in texts.items()]).verdict.causes[0]


def places(items: list[Evidence]) -> list[tuple[str, int | None]]:
    return [(item.source, item.line) for item in items]


XID = "Mar  1 10:00:05 gpu07 kernel: NVRM: Xid (PCI:0000:b3:00): 79, pid=417, GPU has fallen off the bus."


def watchdog(clock: str, rank: int = 1) -> str:
    return (
        f"[rank{rank}]:[E301 {clock} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7487, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out."
    )


def test_in_one_file_the_order_decides() -> None:
    found = first({"job.log": [watchdog("09:59:59.1"), XID, watchdog("10:10:05.3", 2)]})
    assert found.cause == "gpu-hardware-fault"
    assert places(found.secondary) == [("job.log", 3)] and places(found.also_seen) == [("job.log", 1)]


def test_what_was_pasted_above_is_as_late_as_it_says() -> None:
    found = first({"job.log": [watchdog("10:10:05.3"), XID]})
    assert places(found.secondary) == [("job.log", 1)] and not found.also_seen


@pytest.mark.parametrize(
    ("clock", "follow"), [("10:10:05.3", True), ("09:50:00.0", False), ("14:00:00.0", False)], ids=str
)
def test_between_files_times_decide(clock: str, follow: bool) -> None:
    found = first({"dmesg.txt": [XID], "rank1.log": [watchdog(clock)]})
    assert found.cause == "gpu-hardware-fault"
    assert places(found.secondary) == ([("rank1.log", 1)] if follow else [])
    assert places(found.also_seen) == ([] if follow else [("rank1.log", 1)])


def test_a_line_without_a_time_is_no_earlier_than_the_one_above() -> None:
    late = "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    found = first({"dmesg.txt": [XID], "rank1.log": [watchdog("10:10:05.3"), late]})
    assert places(found.secondary) == [("rank1.log", 1), ("rank1.log", 2)] and not found.also_seen
    found = first({"dmesg.txt": [XID], "rank1.log": [late]})
    assert places(found.also_seen) == [("rank1.log", 1)] and not found.secondary


def test_another_launch_in_the_same_file() -> None:
    error = "libfabric: cannot pin: RLIMIT_MEMLOCK is too low"
    launch = "$ mpirun -np 2 ./all_reduce_perf -g 1"
    closed = "misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gpu08<33081>"
    assert places(first({"job.log": [launch, error, closed]}).secondary) == [("job.log", 3)]
    assert places(first({"job.log": [launch, error, launch, closed]}).also_seen) == [("job.log", 4)]


def test_that_a_launcher_ends_a_job_launches_nothing() -> None:
    found = first(
        {
            "job.log": [
                "=>> PBS: job killed: walltime 86439 exceeded limit 86400",
                "mpiexec: killing job...",
                "misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gpu08<33081>",
            ]
        }
    )
    assert found.cause == "killed-by-scheduler" and places(found.secondary) == [("job.log", 3)]


def rank(number: int, host: str, comm: str, nranks: int = 2) -> str:
    return (
        f"{host}:{100 + number}:{200 + number} [0] NCCL INFO ncclCommInitRank comm 0x{number + 1} rank {number} nranks {nranks} "
        f"cudaDev 0 nvmlDev 0 busId 1b000 commId {comm} - Init START"
    )


@pytest.mark.parametrize(("comm", "follow"), [("0xaa", True), ("0xbb", False)])
def test_between_files_without_times_a_shared_communicator_decides(comm: str, follow: bool) -> None:
    parser = NcclLog()
    closed = (
        "gpu08:101:201 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gpu07<33081>"
    )
    for name, lines in {"a.log": [rank(0, "gpu07", "0xaa")], "b.log": [rank(1, "gpu08", comm), closed]}.items():
        parser.feed(name, "\n".join([*lines, ""]).encode())
        parser.end(name)
    fault = Signal("gpu-hardware-fault", Says.NAMED, "", [Evidence("a.log", "Xid", 5)])
    said = Signal("", Says.CASCADE, "", [Evidence("b.log", closed, 2)])
    unsaid = Signal("rank-died", Says.HINT, "", [Evidence("b.log", closed, 2)])
    asked = follows([fault, said, unsaid], parser.finish(), {}, {"a.log": 0.0, "b.log": 5.0})
    assert asked(said, fault) is follow and not asked(unsaid, fault)


def test_other_communicators_are_another_job_whatever_the_time() -> None:
    parser = NcclLog()
    for name, line in {"a.log": rank(0, "gpu07", "0xaa"), "b.log": rank(1, "gpu08", "0xbb")}.items():
        parser.feed(name, (line + "\n").encode())
        parser.end(name)
    fault = Signal("gpu-hardware-fault", Says.NAMED, "", [Evidence("a.log", "10:00:00 Xid", 5)])
    later = Signal("", Says.CASCADE, "", [Evidence("b.log", "10:00:01 closed", 2)])
    assert not follows([fault, later], parser.finish(), {}, {})(later, fault)
    assert follows([fault, later], NcclLog().finish(), {}, {})(later, fault)


def test_how_it_is_shown() -> None:
    cause = Cause("disk-full", "sure", "full", evidence=[Evidence("a", "x", 1)])
    cause.secondary, cause.also_seen = [Evidence("a", "after", 2)], [Evidence("b", "beside", 1)]
    text = causes_as_text([cause], color=None)
    assert text.index("follows from it:") < text.index("after") < text.index("is not known:") < text.index("beside")
    cause.confidence = "possible"
    assert "follows from it" not in causes_as_text([cause], color=None)
    assert cause.as_dict()["also_seen"] == [{"source": "b", "text": "beside", "line": 1}]
