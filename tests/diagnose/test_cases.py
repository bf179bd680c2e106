"""Every cause has a log of its own making in cases/<cause>[.name].log, and it comes out first; healthy ones raise no fault."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ncdiag.exits import of_cause
from ncdiag.logs.diagnose import diagnose
from ncdiag.logs.remedies import NEXT, REMEDIES
from ncdiag.logs.rules import RULES

CASES = sorted((Path(__file__).parent / "cases").glob("*.log"))
GOOD = ("healthy", "slow-not-hung")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_comes_out_first(path: Path) -> None:
    want = path.name.split(".")[0]
    causes = diagnose([str(path)]).verdict.causes
    assert causes[0].cause == want, [(cause.cause, cause.confidence, cause.summary) for cause in causes]
    assert causes[0].evidence, "a cause rests on lines"
    text = path.read_text().splitlines()
    for item in causes[0].evidence:
        assert item.line is not None and item.text[:10] in text[item.line - 1]
    if want in GOOD:
        assert of_cause(causes[0].cause, causes[0].confidence) == 0
    if want == "unresolved":
        assert of_cause(causes[0].cause, causes[0].confidence) == 3 and not any(
            cause.confidence == "sure" for cause in causes
        )


def test_every_cause_has_a_case() -> None:
    assert set(REMEDIES) <= {path.name.split(".")[0] for path in CASES}


def test_every_cause_of_the_rules_is_known() -> None:
    known = set(REMEDIES) | {"unresolved"}
    assert {rule.cause for rule in RULES if rule.cause} <= known
    assert {name for rule in RULES for name in rule.candidates} <= known
    assert set(NEXT) <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.cause or rule.says.name}-{rule.literals[0][:20]}")
def test_summaries_name_groups_of_the_expression(rule) -> None:
    names = set(rule.regex.groupindex) if rule.regex else set()
    assert set(re.findall(r"\{(\w+)\}", rule.summary + rule.remedy)) <= {name.rstrip("23456789") for name in names}, (
        rule.summary
    )


def test_port_held_by_a_process_of_an_engine_may_be_an_earlier_run(tmp_path) -> None:
    text = """[E socket.cpp:957] [c10d] The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use
$ ss -ltnp
State  Recv-Q Send-Q Local Address:Port Peer Address:PortProcess
LISTEN 0      128    0.0.0.0:29500      0.0.0.0:*        users:(("{holder}",pid=3112,fd=40))
"""
    for holder, want in (
        ("python3", [("port-in-use", "likely"), ("stale-process", "likely")]),
        ("nginx", [("port-in-use", "sure")]),
    ):
        path = tmp_path / holder
        path.write_text(text.format(holder=holder))
        assert [(cause.cause, cause.confidence) for cause in diagnose([str(path)]).verdict.causes] == want
