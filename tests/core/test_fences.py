"""A probe that raises, hangs or returns nonsense costs itself only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host, Recorded
from ncdiag.model import Finding, NodeFacts, Probe, Snapshot, Status, ok
from ncdiag.registry import ProbeSet
from ncdiag.tree import MemoryTree

NEVER = threading.Event()


def _set(*probes: Probe) -> ProbeSet:
    chosen = ProbeSet()
    chosen.update({probe.id: probe for probe in probes})
    return chosen


def _fine(snapshot: Snapshot) -> Iterator[Finding]:
    for node, _ in snapshot.each("fine"):
        yield ok("fine", node)


def _judge_breaks(snapshot: Snapshot) -> Iterator[Finding]:
    yield ok("one", "n")
    raise KeyError("missing")


def _judge_odd(snapshot: Snapshot) -> Any:
    return ["x"]


def _raise(error: BaseException) -> Any:
    raise error


def test_each_fault_is_one_unknown_and_the_rest_is_complete() -> None:
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    broken = {
        "raises": lambda host: _raise(RuntimeError("boom")),
        "exits": lambda host: _raise(SystemExit(1)),
        "hangs": lambda host: NEVER.wait(30),
        "nonsense": lambda host: {"a": object()},
        "not-a-number": lambda host: {"a": float("nan")},
        "cyclic": lambda host: cyclic,
        "huge": lambda host: "x" * (9 << 20),
    }
    probes = _set(
        Probe("fine", "f", _fine, lambda host: {"a": 1}),
        *(Probe(name, name, lambda snapshot: (), function, timeout_s=0.5) for name, function in broken.items()),
    )
    started = time.monotonic()
    node = collect(Host(), list(probes.values()))
    assert time.monotonic() - started < 10
    assert set(node.errors) == set(broken)
    assert "0.5 s" in node.errors["hangs"] and "boom" in node.errors["raises"]
    findings = check(Snapshot({"n": node}), probes)
    assert {finding.probe for finding in findings if finding.status is Status.UNKNOWN} == set(broken)
    assert [finding.probe for finding in findings if finding.status is Status.OK] == ["fine"]


def test_judge_that_breaks_keeps_what_it_said() -> None:
    findings = check(Snapshot(), _set(Probe("breaks", "b", _judge_breaks)))
    assert [finding.status.value for finding in findings] == ["ok", "unknown"]
    assert "KeyError" in findings[1].summary


def test_judge_that_says_nothing_or_no_finding() -> None:
    findings = check(Snapshot(), _set(Probe("silent", "s", lambda snapshot: ()), Probe("odd", "o", _judge_odd)))
    assert [finding.status.value for finding in findings] == ["unknown", "unknown"]


def test_time_of_the_node_is_bounded() -> None:
    probes = [Probe(f"slow-{number}", "s", None, lambda host: NEVER.wait(30), timeout_s=20) for number in range(9)]
    started = time.monotonic()
    node = collect(Recorded(MemoryTree(), "a"), probes, budget_s=0.5)
    assert time.monotonic() - started < 5
    assert len(node.errors) == 9


def test_users_probe_needs_its_file_only(tmp_path: Path) -> None:
    (tmp_path / "my_rule.py").write_text(
        '"""Mine holds.\n\nSource: here.\n"""\nfrom ncdiag.model import Probe, fail\n\n\ndef collect(host):\n    return {"a": 1}\n\n\n'
        'def judge(snapshot):\n    for node, facts in snapshot.each("my-rule"):\n        yield fail("mine", node)\n\n\n'
        'PROBE = Probe("my-rule", "mine", judge, collect)\n'
    )
    (tmp_path / "broken.py").write_text("this is not Python")
    (tmp_path / "misnamed.py").write_text("from ncdiag.model import Probe\nPROBE = Probe('other', 'x')\n")
    probes = registry.load([str(tmp_path)])
    assert "my-rule" in probes and set(probes.broken) == {"broken", "misnamed"}
    chosen = probes.chosen(["my-rule", "broken"])
    node = collect(Host(), probes.sources(chosen))
    findings = check(Snapshot({"n": node}), chosen)
    assert [(finding.probe, finding.status.value) for finding in findings] == [
        ("broken", "unknown"),
        ("my-rule", "fail"),
    ]


@pytest.mark.parametrize(
    ("reason", "way"),
    [
        ("Host key verification failed.", "ssh-keygen -R NODE"),
        ("me@gpu01: Permission denied (publickey,password).", "ssh-copy-id NODE"),
        ("ssh: Could not resolve hostname gpu01: Name or service not known", "/etc/hosts"),
        ("ssh: connect to host gpu01 port 22: Connection refused", "sshd"),
        ("ssh: connect to host gpu01 port 22: No route to host", "ip route get"),
        ("bash: python3: command not found", "3.8 or newer"),
        ("[Errno 13] Permission denied: '/tmp/x'", "3.8 or newer"),
    ],
)
def test_a_node_that_gave_nothing_is_told_how_it_answers(reason: str, way: str) -> None:
    nodes = {"gpu01": NodeFacts("gpu01", unreachable=reason)}
    said = next(one for one in check(Snapshot(nodes), registry.load()) if one.probe == "node")
    assert reason in said.summary and said.remedy is not None and way in said.remedy
