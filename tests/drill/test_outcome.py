"""What ncdiag has written of a run, also where it was ended in the middle of that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncdiag.drill.outcome import Run, result

WHOLE = json.dumps({"outcome": "stalled", "causes": [{"cause": "rank-died"}], "stalls": [{"quiet_s": 6.0}]})


@pytest.mark.parametrize("written", [None, "", WHOLE[:40], "[]["])
def test_no_result_or_half_of_one_is_none(tmp_path: Path, written: str | None) -> None:
    path = tmp_path / "result.json"
    if written is not None:
        path.write_text(written)
    run = Run(result(path, 0.0), -9, "", "", "", 0.0, None)
    assert (run.outcome, run.cause, run.stage, run.verdict_s) == ("none", {}, "", 0.0)
    assert run.result["took_s"] > 0


def test_a_whole_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(WHOLE)
    run = Run(result(path, 0.0), 1, "", "", "", 0.0, None)
    assert (run.outcome, run.cause["cause"], run.verdict_s) == ("stalled", "rank-died", 6.0)
