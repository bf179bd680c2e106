"""Flight-recorder dumps: pickle and JSON, hostile and damaged files, where they lie, what they say together."""

from __future__ import annotations

import json
import os
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from ncdiag.hang import flight_recorder as recorder
from ncdiag.hang.content import DumpContent
from ncdiag.model import RankState


def entry(
    sequence: int,
    operation: str = "nccl:all_reduce",
    sizes: Any = ((1024,),),
    group: tuple[str, str] = ("0", "default_pg"),
    **more: Any,
) -> dict[str, Any]:
    return {
        "collective_seq_id": sequence,
        "profiling_name": operation,
        "input_sizes": [list(size) for size in sizes],
        "input_dtypes": ["Float"],
        "process_group": group,
        "pg_id": 0,
        "is_p2p": False,
        "state": "scheduled",
        **more,
    }


def dump(entries: list[dict[str, Any]], ranks: str = "[0, 1, 2, 3]", name: str = "0") -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {name: {"name": name, "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": len(entries)}},
        "entries": entries,
    }


@pytest.mark.parametrize("encode", [pickle.dumps, lambda data: json.dumps(data).encode()])
def test_both_forms(encode: Any, tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(encode(dump([entry(1)])))
    assert recorder.read(str(tmp_path / "dump"))["entries"][0]["collective_seq_id"] == 1


def test_json_without_entries_has_none() -> None:
    assert recorder.parse(b'{"version": "2.10", "pg_config": {}}')["entries"] == []


class Hostile:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path: Path) -> None:
    hostile = pickle.dumps({"version": "2.10", "entries": [Hostile(str(tmp_path / "made"))]})
    with pytest.raises(recorder.DumpError, match="it wants to load"):
        recorder.parse(hostile)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x80\x04",
        b"{",
        b"[]",
        b"{}",
        pickle.dumps([1]),
        pickle.dumps({"version": 1, "entries": 7}),
        pickle.dumps({"version": "2", "entries": [1]}),
        random.Random(7).randbytes(64),
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    ],
)
def test_damaged_files_are_one_sentence(raw: bytes) -> None:
    with pytest.raises(recorder.DumpError):
        recorder.parse(raw)


def test_a_pipe_or_nothing_in_its_place(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "absent"):
        with pytest.raises(recorder.DumpError, match=name):
            recorder.read(str(tmp_path / name))


def test_where_dumps_lie_and_that_old_ones_do_not_count(tmp_path: Path) -> None:
    cache = tmp_path / ".cache" / "torch"
    cache.mkdir(parents=True)
    for name, age in (("nccl_trace_rank_3", 100), ("comm_lib_trace_rank_3", 50)):
        (cache / name).write_bytes(b"x")
        os.utime(cache / name, (1000 - age, 1000 - age))
    environ = {"HOME": str(tmp_path)}
    assert recorder.find(environ, 3) == str(cache / "comm_lib_trace_rank_3")
    assert recorder.find(environ, 3, since=990) is None and recorder.find(environ, 4) is None
    (tmp_path / "own_3").write_bytes(b"x")
    assert recorder.find({**environ, "TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "own_")}, 3) == str(tmp_path / "own_3")
    assert recorder.find({"HOME": "/", "TORCH_FR_DUMP_TEMP_FILE": "/own_"}, 3, str(tmp_path)) == f"{tmp_path}/own_3"


def test_asking_through_the_pipe(tmp_path: Path) -> None:
    environ = {recorder.PIPE_VARIABLE: str(tmp_path / "fr_")}
    assert "was not set" in (recorder.request({}, 1) or "")
    assert "No such file" in (recorder.request(environ, 1) or "")
    os.mkfifo(tmp_path / "fr_1.pipe")
    assert "nobody reads it" in (recorder.request(environ, 1) or "")
    (tmp_path / "fr_2.pipe").write_bytes(b"")
    assert "is no pipe" in (recorder.request(environ, 2) or "")
    assert (tmp_path / "fr_2.pipe").read_bytes() == b"", "what is no pipe is not written"
    heard: list[bytes] = []
    reader = os.open(tmp_path / "fr_1.pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert recorder.request(environ, 1) is None
    thread = threading.Thread(target=lambda: heard.append(os.read(reader, 10)))
    thread.start()
    thread.join(5)
    os.close(reader)
    assert heard and heard[0]


def test_who_is_behind() -> None:
    full, short = [entry(1), entry(2), entry(3)], [entry(1), entry(2)]
    (report,) = recorder.compare({0: dump(full), 1: dump(full), 2: dump(short), 3: dump(full)})
    assert (report.name, report.behind, report.odd, report.absent) == ("0 (default_pg)", [2], [], [])
    assert report.last == {0: 3, 1: 3, 2: 2, 3: 3} and report.operations[2] == "all_reduce [1024]"


def test_a_member_that_issued_nothing_is_behind_and_one_without_a_dump_is_absent() -> None:
    (report,) = recorder.compare({0: dump([entry(1)]), 1: dump([entry(1)]), 2: dump([])})
    assert (report.behind, report.absent) == ([2], [3])


def test_the_minority_that_issued_another_collective() -> None:
    same, other = [entry(1), entry(2)], [entry(1), entry(2, "nccl:all_reduce", ((2048,),))]
    (report,) = recorder.compare({0: dump(same), 1: dump(other), 2: dump(same), 3: dump(same)})
    assert report.odd == [1] and report.behind == []
    assert (
        report.mismatch
        == "collective 2: all_reduce [1024] ['Float'] on ranks 0, 2, 3, all_reduce [2048] ['Float'] on rank 1"
    )


def test_two_ranks_that_differ_have_no_culprit() -> None:
    (report,) = recorder.compare({0: dump([entry(1)], "[0, 1]"), 1: dump([entry(1, "nccl:broadcast")], "[0, 1]")})
    assert report.mismatch and report.odd == []


def test_what_may_differ_between_ranks_is_no_mismatch() -> None:
    first, second = entry(1, "nccl:all_to_all", ((8,),)), entry(1, "nccl:all_to_all", ((16,),))
    (report,) = recorder.compare({0: dump([first]), 1: dump([second]), 2: dump([first]), 3: dump([first])})
    assert report.mismatch == "" and report.behind == []


def test_groups_match_by_name_and_point_to_point_does_not_count() -> None:
    tp = ("7", "tensor")
    dumps = {
        rank: dump([entry(1), entry(1, group=tp, pg_id=rank), entry(9, "nccl:send 0->1", is_p2p=True)])
        for rank in (0, 1)
    }
    reports = recorder.compare(dumps)
    assert [report.name for report in reports] == ["0 (default_pg)", "7 (tensor)"]
    assert all(report.last == {0: 1, 1: 1} for report in reports)
    assert recorder.compare({}) == []


def test_the_verdict_rests_on_them() -> None:
    states = [RankState(40 + rank, "gpu01", "script", rank, 3, state="S") for rank in range(3)]
    full = [entry(1), entry(2), entry(3)]
    behind = DumpContent(states, flight={0: dump(full), 1: dump(full[:1]), 2: dump(full)}).verdict()
    assert [row.rank for row in behind.culprits] == [1]
    assert behind.cause is not None and any(
        "rank 1 at collective 1" in evidence.text for evidence in behind.cause.evidence
    )
    differs = DumpContent(
        states, flight={0: dump(full), 1: dump(full), 2: dump([*full[:2], entry(3, sizes=((7,),))])}
    ).verdict()
    assert (
        differs.cause is not None
        and differs.cause.cause == "collective-desync"
        and [row.rank for row in differs.culprits] == [2]
    )


def timed(last: int, created_s: float, written_s: float) -> dict[str, Any]:
    """One collective every 0.1 s, the last one at `created_s`."""
    entries = [
        entry(n, time_created_ns=int((created_s - (last - n) / 10) * 1e9)) for n in range(max(last - 30, 1), last + 1)
    ]
    return {**dump(entries), "written_s": written_s}


@pytest.mark.parametrize(
    ("waited_s", "behind"),
    [(0.0, []), (5.0, []), (20.0, [0, 1, 2])],
    ids=["written-at-once", "written-late", "stands"],
)
def test_ranks_of_a_job_that_goes_on_are_not_behind_for_being_asked_earlier(waited_s: float, behind: list[int]) -> None:
    """As on 8 H200 ranks: looked at within 0.8 s of each other, 11 collectives apart, written 4 to 6 s later."""
    lasts = {0: 549, 1: 556, 2: 549, 3: 560}
    dumps = {rank: timed(last, 1000 + last / 10, 1056 + waited_s) for rank, last in lasts.items()}
    (report,) = recorder.compare(dumps)
    assert report.behind == behind


def test_a_dump_of_an_earlier_moment_does_not_make_its_rank_the_one_behind() -> None:
    dumps = {0: timed(60, 1006.0, 1007.0), 1: timed(900, 1090.0, 1100.0), 2: timed(900, 1090.0, 1100.0)}
    (report,) = recorder.compare(dumps)
    assert report.behind == []
    dumps[0]["written_s"] = 1100.0  # looked at when the others were
    (report,) = recorder.compare(dumps)
    assert report.behind == [0]
