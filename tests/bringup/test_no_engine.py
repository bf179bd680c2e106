"""Of a command without an engine it is said what it is; what works in it is no stall."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ncdiag.bringup import no_engine
from ncdiag.model import Progress


def program(pid: int, command: str, progress: Progress | None = None) -> dict[str, Any]:
    moved = asdict(progress) if progress else None
    return {"pid": pid, "command": command, "state": "S", "wchan": "do_wait", "progress": moved}


def test_the_last_program_is_named_and_all_are_shown() -> None:
    verdict = no_engine.verdict([{"node": "n", "others": [program(5, "sh -c x"), program(6, "rsync a b")]}])
    assert verdict.kind == "unknown" and verdict.cause is not None
    assert "`rsync a b`, pid 6" in verdict.summary and len(verdict.cause.evidence) == 2
    assert not any("ranks" in step for step in verdict.next)


def test_without_any_program_the_nodes_are_named() -> None:
    verdict = no_engine.verdict([{"node": "n"}, {"node": "m"}, {"node": "k", "error": "no route"}])
    assert verdict.summary == "no process of an engine was found on n, m"


def test_what_reads_or_computes_moves_and_what_waits_does_not() -> None:
    idle, reads, computes = Progress(2.0), Progress(2.0, rchar=9 << 20), Progress(2.0, cpu_s=1.5)
    for progress, moves in ((idle, False), (reads, True), (computes, True), (None, False)):
        assert no_engine.moves([{"node": "n", "others": [program(5, "rsync", progress)]}]) is moves
    assert not no_engine.moves([{"node": "n", "states": []}])
