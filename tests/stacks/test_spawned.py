"""Ranks that multiprocessing made, started afresh or forked: what they run says where they are, and not how they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stacks.cases import torch_python
from tests.stacks.test_idle import idle, verdict


@pytest.mark.parametrize(
    ("fault", "start", "kinds", "said"),
    [
        ("lock", "spawn", ("hang",), "is in its own code, lock (spawned.py:"),
        ("lock", "fork", ("hang",), "is in its own code, lock (spawned.py:"),
        ("slow", "spawn", ("progressing",), "runs the program's own code"),
        ("healthy", "spawn", ("healthy", "progressing"), ""),
    ],
)
def test_ranks_without_a_number(tmp_path: Path, fault: str, start: str, kinds: tuple[str, ...], said: str) -> None:
    python = torch_python()
    if python is None:
        pytest.skip("no torch: name an interpreter that has it in NCDIAG_LAB_PYTHON")
    with idle(fault, tmp_path, python, start, "spawned") as pid:
        told = verdict(pid)
    assert told.kind in kinds and said in told.summary, told.summary
    assert len(told.culprits) == (fault == "lock")
    assert not any(rank.stage == "start" for rank in told.ranks), told.ranks
