"""`ncdiag log`: the text a person reads, the JSON, the exit codes."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import List, Optional

import pytest
from click.testing import CliRunner

from ncdiag.cli.log import command
from ncdiag.nccl.log import NcclLog
from ncdiag.report.nccl_log import log_as_text

from . import composed


def text_of(lines: List[str], every_rank: bool = False) -> str:
    parser = NcclLog()
    parser.feed("logs/job.log", "\n".join(lines).encode() + b"\n")
    return log_as_text(parser.finish(), color=None, every_rank=every_rank)


def run(
    lines: List[str], folder: pathlib.Path, *options: str, name: str = "job.log", data: Optional[bytes] = None
) -> tuple[int, str]:
    folder.joinpath(name).write_bytes(data if data is not None else "\n".join(lines).encode() + b"\n")
    result = CliRunner().invoke(
        command, [str(folder), *options], obj={"color": "never", "verbose": 0, "quiet": False}, standalone_mode=False
    )
    assert result.exception is None
    return result.return_value, result.output


def test_a_healthy_job_in_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = text_of(composed.job((2, 27, 3), 8))
    assert "NCCL 2.27.3  ·  8 processes on node[01-04]  ·  1 communicator" in text
    assert "complete" in text
    assert "NET/IB/GDRDMA ×8" in text
    assert "0-7 ×2" in text
    assert len(text.splitlines()) < 40


def test_who_holds_up_whom_is_said_with_its_last_line() -> None:
    text = " ".join(
        text_of(composed.job((2, 24, 3), until={0: "graph", 1: "graph", 2: "topology", 3: "graph"})).split()
    )
    assert "communicator 0: rank 2 got no further than topology" in text
    assert "rank 2 on node02, last line job.log:" in text


def test_what_differs_is_set_apart() -> None:
    each = {rank: {"NCCL_ALGO": "Ring" if rank else "Tree", "NCCL_IB_TIMEOUT": "22"} for rank in range(4)}
    text = " ".join(text_of(composed.job((2, 25, 1), settings=each)).split())
    assert "Different between ranks of communicator 0 NCCL_ALGO Ring rank 1-3 NCCL_ALGO Tree rank 0" in text
    assert text.index("NCCL_IB_TIMEOUT 22") < text.index("Different between ranks")


def test_every_rank_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    rows = [line for line in text_of(composed.job((2, 27, 3)), every_rank=True).splitlines() if " 4002 " in line]
    assert "node02" in rows[0]
    assert "complete" in rows[0]
    assert "←1 NET/IB/GDRDMA ×2" in rows[0]


def test_control_characters_of_a_log_do_not_reach_the_terminal() -> None:
    text = text_of(
        [composed.prefix(0) + "Using network I\x07B\u202e", composed.prefix(0).replace("INFO", "WARN") + "oops \x9b31m"]
    )
    assert not set(text) & {"\x07", "\x9b", "\u202e", "\x1b"}


def test_exit_codes(tmp_path: pathlib.Path) -> None:
    assert run(composed.job((2, 27, 3)), tmp_path)[0] == 0
    assert run(composed.job((2, 27, 3), until=dict.fromkeys(range(4), "peers")), tmp_path)[0] == 3
    assert (
        run(composed.job((2, 27, 3), until={0: "bootstrap", 1: "bootstrap", 2: "interface", 3: "bootstrap"}), tmp_path)[
            0
        ]
        == 1
    )
    assert run(["nothing of NCCL here"], tmp_path)[0] == 3


def test_json_has_everything(tmp_path: pathlib.Path) -> None:
    code, output = run(
        [],
        tmp_path,
        "--format",
        "json",
        name="job.log.gz",
        data=gzip.compress("\n".join(composed.job((2, 27, 3))).encode()),
    )
    data = json.loads(output)
    assert (code, data["exit"], data["schema"], data["command"]) == (0, 0, 1, "log")
    assert data["communicators"][0]["ranks"][1]["links"][0]["transport"] == "NET/IB"
    assert data["processes"][0]["settings"] == {}


@pytest.mark.parametrize("newest_first", [False, True])
def test_what_a_collector_wrapped_is_read_as_it_was_printed(tmp_path: pathlib.Path, newest_first: bool) -> None:
    lines = composed.job((2, 27, 3), 4)
    wrapped = [
        json.dumps({"log": line + "\n", "stream": "stderr", "time": f"2030-01-01T00:{n // 60:02}:{n % 60:02}Z"})
        for n, line in enumerate(lines)
    ]
    for name in ("plain", "wrapped"):
        (tmp_path / name).mkdir()
    code, plain = run(lines, tmp_path / "plain", "--format", "json")
    told, out = run(wrapped[::-1] if newest_first else wrapped, tmp_path / "wrapped", "--format", "json")
    one, other = (json.loads(text[text.index("{") :]) for text in (plain, out))
    assert code == told and one["communicators"] == other["communicators"] and one["communicators"]
    assert any("put in order" in note for note in other["notes"]) == newest_first
