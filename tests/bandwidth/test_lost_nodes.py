"""Nodes that do not answer: named with their reason, and nothing is known of them. The agents are real processes that say what is scripted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ncdiag.bandwidth.engine_share import Load
from ncdiag.bandwidth.measure import Nobody, Report, Wanted, measure
from ncdiag.bandwidth.node.words import MARK
from ncdiag.bandwidth.reach import Line, ProcessLine, Way
from ncdiag.bandwidth.sweep import Effort
from ncdiag.cli.bandwidth import as_data
from ncdiag.cli.options import exit_code
from ncdiag.report.bandwidth import render


def answering(node: str, memory_free: int = 8 * 10**9) -> Way:
    """An agent that says what it is, and waits for its leash to end."""
    facts = {
        "event": "hello",
        "cuda": [],
        "cpus": 2,
        "memory_free": memory_free,
        "torch": "2.9.0",
        "links": {},
        "interfaces": {},
    }
    script = f"import sys; print({(MARK + json.dumps(facts))!r}, flush=True); sys.stdin.buffer.read()"
    return Way(node, lambda: ProcessLine([sys.executable, "-c", script]))


def ending(node: str, words: str) -> Way:
    return Way(node, lambda: ProcessLine([sys.executable, "-c", f"import sys; sys.exit({words!r})"]))


def absent(node: str) -> Way:
    def cannot() -> Line:
        raise OSError("no route to host")

    return Way(node, cannot)


def measured(
    *ways: Way, per_node: int | None = None, limit_s: float | None = None, sizes: tuple[int, int | None, int] = (8, 64, 2),
    pair_size: int | None = None, say: Callable[[str], None] = lambda text: None,
) -> Report:  # fmt: skip
    wanted: dict[str, Any] = dict.fromkeys(("expect", "baseline", "shape"))
    return measure(
        ways,
        Wanted(
            ops=("all_reduce",), sizes=sizes, dtype="float32", backend="gloo", effort=Effort(), per_node=per_node, share=False,
            isolate="auto", pair_size=pair_size, pair_limit_s=5, limit_s=limit_s, load=Load(1, 1), **wanted,
        ),
        say,
    )  # fmt: skip


def test_the_one_that_does_not_answer_is_named() -> None:
    report = measured(answering("n1"), ending("hang1", "Connection timed out"), absent("gone1"))
    told = [(finding.status.value, finding.where.get("node"), finding.summary) for finding in report.findings]
    assert told == [
        ("unknown", "hang1", "hang1 does not take part: Connection timed out"),
        ("unknown", "gone1", "gone1 does not take part: no route to host"),
        ("unknown", None, "nothing was measured: n1 alone gives one rank, and bandwidth is measured between two"),
    ]
    assert exit_code(report.findings, "fail") == 3
    text = render(as_data(report, 3), report.findings, [], color=None, detail=False)
    assert text.splitlines()[0] == "# 1 rank on n1, gloo, CPU; torch 2.9.0"


def test_nobody_answers() -> None:
    report = measured(ending("n1", "refused"), ending("n2", "refused"))
    assert [finding.summary for finding in report.findings][-1].startswith("nothing was measured: no node answers")
    text = render(as_data(report, 3), report.findings, [], color=None, detail=False)
    assert text.splitlines()[0] == "# 0 ranks, gloo"


def test_one_healthy_node_is_a_matter_of_usage() -> None:
    with pytest.raises(Nobody, match="n1 alone gives one rank"):
        measured(answering("n1"))


def test_too_many_ranks_are_refused_before_one_is_started() -> None:
    with pytest.raises(Nobody, match="--ranks-per-node 100000: n1 has 2 CPUs and takes 8 ranks at most"):
        measured(answering("n1"), per_node=100_000)


def test_only_those_that_ran_are_in_the_title() -> None:
    ranks = [{"rank": number, "node": f"n{number + 1}", "name": "CPU"} for number in range(2)]
    data = {**as_data(Report(backend="gloo"), 0), "ranks": ranks, "nodes": ["n1", "n2", "gone1"]}
    assert render(data, [], [], color=None, detail=False).splitlines()[0] == "# 2 ranks on n[1-2], gloo, CPU"
