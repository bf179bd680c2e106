"""NCCL RAS's own answers and torch's own recorder files, as real jobs gave them."""

from __future__ import annotations

import pytest

from ncdiag.hang import flight_recorder
from ncdiag.nccl import ras, ras_text
from tests.gpu.captures import STACKS

ANSWERED = sorted(file.parent.name for file in STACKS.glob("*/ras.json"))


def body(case: str, kind: str) -> str:
    """The report itself: after the replies to the commands that came before it."""
    text = (STACKS / case / f"ras.{kind}").read_text()
    return text[text.index("{") :] if kind == "json" else text.split("OK\n", 1)[1]


@pytest.mark.parametrize("case", ANSWERED)
def test_text_and_json_of_one_moment_agree(case: str) -> None:
    from_json, from_text = ras.parse_json(body(case, "json")), ras_text.parse_text(body(case, "txt"))
    assert from_json["nccl_version"] == from_text["nccl_version"] == "2.28.9"
    silent = [{rank["rank"] for rank in comm.get("missing_ranks") or ()} for comm in from_json["communicators"]]
    told = [{rank["rank"] for rank in comm.get("missing_ranks") or ()} for comm in from_text["communicators"]]
    assert sorted(map(sorted, (ranks for ranks in silent if ranks))) == sorted(
        map(sorted, (ranks for ranks in told if ranks))
    )


@pytest.mark.parametrize(
    ("case", "silent"),
    [
        ("stopped-rank", {1}),
        ("stopped-rank-of-four", {2}),
        ("killed-rank", {3}),
        ("killed-rank-one-host", {1}),
        ("left-early", {1}),
        ("exception", {1}),
    ],
)
def test_a_rank_that_does_not_answer_is_missing(case: str, silent: set[int]) -> None:
    report = ras.parse_json(body(case, "json"))
    assert {rank["rank"] for comm in report["communicators"] for rank in comm["missing_ranks"]} == silent


@pytest.mark.parametrize(("case", "behind"), [("loader", [2]), ("skipped-collective", [3])])
def test_recorder_files_say_who_is_behind(case: str, behind: list[int]) -> None:
    dumps = {
        int(file.name[len("recorder_") :]): flight_recorder.read(str(file))
        for file in (STACKS / case).glob("recorder_*")
    }
    assert sorted(dumps) == [0, 1, 2, 3]
    (report,) = flight_recorder.compare(dumps)
    assert report.behind == behind and not report.mismatch


def test_a_stopped_rank_leaves_no_recorder_file() -> None:
    dumps = {
        int(file.name[len("recorder_") :]): flight_recorder.read(str(file))
        for file in (STACKS / "stopped-rank-of-four").glob("recorder_*")
    }
    (report,) = flight_recorder.compare(dumps)
    assert sorted(dumps) == [0, 1, 3] and report.absent == [2]
