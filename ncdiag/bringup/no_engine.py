"""A command under watch in which no engine is to be seen: what it is instead, and where to look (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.hang import activity
from ncdiag.hang.verdict import Verdict
from ncdiag.model import Cause, Evidence, Progress
from ncdiag.report.bringup import ELSEWHERE


def verdict(answers: Sequence[Mapping[str, Any]]) -> Verdict:
    """Nothing moves, and no node has a process of an engine. `answers`: of a full look."""
    programs = [(answer["node"], program) for answer in answers for program in answer.get("others", ())]
    looked = ", ".join(dict.fromkeys(str(answer["node"]) for answer in answers if not answer.get("error")))
    if not programs:
        summary = f"no process of an engine was found on {looked or 'any node'}"
        return _unresolved(summary, {}, [], ["whether it has started at all, and on which nodes", ELSEWHERE])
    node, last = programs[-1]
    summary = f"the command still runs ({_name(last)}), but no process of an engine is to be seen below it"
    evidence = [Evidence(f"process {program['pid']} on {where}", _what(program)) for where, program in programs]
    return _unresolved(summary, {"node": node}, evidence, [f"what {_name(last)} waits for", ELSEWHERE])


def moves(answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a program works that is of no engine, or not yet: a copy of the weights before the start, an import of a Ray worker."""
    moved = [Progress(**program["progress"]) for program in _programs(answers) if program.get("progress")]
    return any(activity.busy(progress) or activity.moves_data(progress) for progress in moved)


def _programs(answers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [program for answer in answers for program in answer.get("others", ())]


def _unresolved(summary: str, where: dict[str, Any], evidence: list[Evidence], steps: list[str]) -> Verdict:
    cause = Cause(
        "unresolved",
        "possible",
        summary,
        where,
        evidence,
        [],
        f"find out {steps[0]}; an engine that runs elsewhere is watched there",
    )
    return Verdict("unknown", summary, [cause], next=steps)


def _name(program: Mapping[str, Any]) -> str:
    return f"`{program['command'][:60]}`, pid {program['pid']}"


def _what(program: Mapping[str, Any]) -> str:
    wchan = f", wchan {program['wchan']}" if program.get("wchan") not in (None, "", "0") else ""
    return f"{program['command'][:120]}: state {program['state']}{wchan}"
