"""The exception that a rank printed before it stopped moving."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from ncdiag.hang import infer
from ncdiag.hang.printed import AFTER, last_exception
from ncdiag.report.hang import verdict_as_json, verdict_as_text
from ncdiag.report.run import Run
from ncdiag.report.saved import of_json
from tests.hang.build import rank

PLAIN = """step 3
ERROR:root:cannot read shard, will retry
Traceback (most recent call last):
  File "/home/user/train.py", line 41, in step
    batch = load(path)
            ^^^^^^^^^^
  File "/home/user/data.py", line 7, in load
    return open(path).read()
FileNotFoundError: [Errno 2] No such file or directory: 'shard-7.bin'"""
MARKED = "\n".join(f"[rank1]: {line}" for line in PLAIN.splitlines())
CHAINED = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nKeyError: 1\n\n'
    "During handling of the above exception, another exception occurred:\n\n" + "\n".join(PLAIN.splitlines()[2:])
)
SAID = "FileNotFoundError: [Errno 2] No such file or directory: 'shard-7.bin'"


@pytest.mark.parametrize("text", [PLAIN, MARKED, CHAINED], ids=["plain", "marked", "chained"])
def test_what_is_kept_of_it(text: str) -> None:
    told = last_exception([line for line in text.splitlines() if line.strip()])
    assert told is not None and told[1] == 0
    assert told[0][-3:] == ['File "/home/user/data.py", line 7, in load', "return open(path).read()", SAID]


@pytest.mark.parametrize("text", ["step 3", "Traceback (most recent call last):", PLAIN[:150]])
def test_what_is_none_or_not_whole(text: str) -> None:
    assert last_exception(text.splitlines()) is None


def test_it_is_shown_with_who_printed_it(tmp_path: Path) -> None:
    states = [rank(number, "gpu-a", "own-late" if number == 1 else "all-reduce", world=3) for number in range(3)]
    states[1].log_tail, states[1].log_source = PLAIN.splitlines(), "/logs/rank1.log"
    verdict = infer(states)
    shown = verdict_as_text(verdict, [], color="never")
    assert "printed by rank 1 (gpu-a, pid 10701) in /logs/rank1.log, its last lines\n    ERROR:root:" in shown, shown
    assert SAID in shown
    again = of_json(verdict_as_json("hang-dump", verdict, [], 3, Run()))
    assert (
        again.verdict.printed == verdict.printed and json.loads(verdict_as_json("x", verdict, [], 3, Run()))["printed"]
    )


def test_one_log_of_several_is_told_once_and_an_old_story_not_at_all() -> None:
    states = [rank(number, "gpu-a", "own-late" if number == 1 else "all-reduce", world=3) for number in range(3)]
    for state in states:
        state.log_tail, state.log_source = PLAIN.splitlines(), "job.log"
    (told,) = infer(states).printed
    assert told.name.startswith("one of rank 1 ")
    later = [dataclasses.replace(state, log_tail=[*state.log_tail, *["step 4"] * (AFTER + 1)]) for state in states]
    assert not infer(later).printed
