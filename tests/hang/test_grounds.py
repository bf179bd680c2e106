"""What turns `late or stuck` into `likely stuck`: for how long nothing ran, by whichever clock there is."""

from __future__ import annotations

from typing import Any

import pytest

from ncdiag.hang import Verdict, infer
from ncdiag.model import Progress
from tests.hang.build import rank


def told(late: dict[str, Any], waits: dict[str, Any]) -> Verdict:
    call = {"name": "recvfrom", "endless": True}
    return infer(
        [rank(0, "node-a", "all-reduce", **waits), rank(1, "node-a", "own", wchan="sk_wait_data", call=call, **late)]
    )


@pytest.mark.parametrize(
    ("late", "waits", "confidence", "words"),
    [
        ({"still_s": 45.0, "asleep_s": 3.0}, {}, "likely", "it has not run for 45 s"),
        ({"asleep_s": 39.0}, {}, "likely", "it has not run for 39 s"),
        ({"still_s": 3.0, "asleep_s": 3.0}, {"still_s": 50.0}, "likely", "the others have waited for 50 s"),
        ({"still_s": 0.2}, {"asleep_s": 38.0}, "likely", "the others have waited for 38 s"),
        ({"still_s": 3.0, "asleep_s": 3.0}, {"still_s": 4.0}, "possible", "late or stuck"),
        ({"asleep_s": 3.0}, {"asleep_s": 3.0}, "possible", "late or stuck"),
        ({}, {}, "possible", "late or stuck"),
    ],
)
def test_how_long_nothing_ran(late: dict[str, float], waits: dict[str, float], confidence: str, words: str) -> None:
    verdict = told(late, waits)
    assert (verdict.causes[0].confidence, [row.rank for row in verdict.culprits]) == (confidence, [1])
    assert words in verdict.summary, verdict.summary
    assert any("--window 40" in step for step in verdict.next) == (confidence == "possible")


def test_who_waits_at_a_message_queue_of_the_engine_waits_too() -> None:
    call = {"name": "recvfrom", "endless": True}
    late = rank(1, "node-a", "own", wchan="sk_wait_data", call=call, still_s=3.0)
    verdict = infer([rank(0, "node-a", "queue", still_s=58.0), late])
    assert verdict.causes[0].confidence == "likely" and "the others have waited for 58 s" in verdict.summary
    ready = infer([rank(0, "node-a", "idle", still_s=58.0), late])
    assert ready.causes[0].confidence == "possible", "who is ready may wait for work as long as it likes"


@pytest.mark.parametrize(("woken", "kind"), [(4, "progressing"), (0, "hang"), (None, "hang")])
def test_a_writer_that_its_reader_wakes_is_slow(woken: int | None, kind: str) -> None:
    call = {"name": "write", "endless": True, "sink": {"file": "pipe:[7]", "readers": [[4711, "S"]], "all": True}}
    progress = Progress(3.0, frames_changed=False, woken=woken)
    late = rank(1, "node-a", "own", wchan="anon_pipe_write", call=call, still_s=0.4, progress=progress)
    assert infer([rank(0, "node-a", "all-reduce", still_s=58.0), late]).kind == kind


@pytest.mark.parametrize(("heard", "kind"), [(90000, "progressing"), (300, "hang")])
def test_who_hears_much_over_the_connection_that_it_waits_at_is_slow(heard: int, kind: str) -> None:
    call = {"name": "recvfrom", "hears": [["192.0.2.1:4000", "192.0.2.9:443"]]}
    progress = Progress(3.0, frames_changed=False, woken=4, heard_bytes=heard)
    late = rank(1, "node-a", "own", wchan="wait_woken", call=call, still_s=0.4, progress=progress)
    assert infer([rank(0, "node-a", "all-reduce", still_s=58.0), late]).kind == kind


@pytest.mark.parametrize(("waited", "confidence"), [(90.0, "possible"), (700.0, "likely")])
def test_a_long_calculation_is_not_soon_called_stuck(waited: float, confidence: str) -> None:
    """One call into a library that sorts, packs or hashes stands at one line for minutes."""
    progress = Progress(3.0, cpu_s=2.9, frames_changed=False)
    computes = rank(1, "node-a", "own", state="R", still_s=0.0, progress=progress)
    verdict = infer([rank(0, "node-a", "all-reduce", still_s=waited), computes])
    assert verdict.causes[0].confidence == confidence and "a very long calculation" in verdict.summary
