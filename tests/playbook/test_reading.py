"""Playbook files: errors name file and line, and YAML's surprises are refused."""

from __future__ import annotations

import pytest

from ncdiag.playbook.loader import load, validate
from ncdiag.playbook.marks import MAX_BYTES, PlaybookError

HEAD = "title: T\nlooks_like: [a]\nknown_by: [b]\nsteps:\n"


def problems(text: str) -> list[str]:
    with pytest.raises(PlaybookError) as caught:
        validate("demo", text, "demo.yaml")
    return caught.value.problems


def test_yes_and_no_are_answers_not_booleans() -> None:
    playbook, _ = validate("demo", HEAD + "  - id: q\n    ask: Sure?\n    then: {yes: stop, no: next}\n", "demo.yaml")
    assert playbook.steps[0].then == {"yes": "stop", "no": "next"}


@pytest.mark.parametrize(
    ("steps", "line", "says"),
    [
        ("  - id: a\n    run: [df]\n    expect:\n      exit: many\n", 8, "integer"),
        (
            "  - id: a\n    run: [df]\n  - id: b\n    ask: q\n    run: [df]\n",
            7,
            "exactly one of probe, run, ask, remedy",
        ),
        ("  - id: a\n", 5, "exactly one of"),
        ("  - id: a\n    ask: q\n    when: x == 1\n", 7, "Extra inputs"),
        ("  - id: a\n    ask: q\n    then: step:../b\n", 7, "pattern"),
        ("  - id: a\n    ask: q\n    then: {yes: 'exec:rm'}\n", 7, "pattern"),
        ("  - {id: a, remedy: r, risk: tiny, undo: u, verify: {look: l}}\n", 5, "'none', 'low', 'medium' or 'high'"),
        ("  - {id: a, remedy: r, risk: low, undo: u, verify: {}}\n", 5, "exactly one of probe, run, look"),
        ("  - {id: a, remedy: r, risk: low, verify: {look: l}}\n", 5, "Field required"),
        (
            "  - id: a\n    remedy: r\n    risk: low\n    undo: u\n    verify: {look: l}\n    action: {exec: [rm]}\n",
            10,
            "an action is one of",
        ),
        (
            "  - id: a\n    remedy: r\n    risk: low\n    undo: u\n    verify: {look: l}\n    action: {set_env: 'A;B'}\n",
            10,
            "pattern",
        ),
        ("  - {id: a, run: [df], unmet: x}\n", 5, "there is no expect"),
        ('  - id: a\n    run: [df, "a\\nb"]\n', 6, "pattern"),
    ],
)
def test_an_error_names_its_line(steps: str, line: int, says: str) -> None:
    assert any(p.startswith(f"demo.yaml:{line}: ") and says in p for p in problems(HEAD + steps)), problems(
        HEAD + steps
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("a: &x [1]\nb: *x\n", "anchor"),
        ("a: !!python/object/apply:os.system [id]\n", "tag"),
        ("%YAML 1.1\n---\na: 1\n", "directive"),
        ("a: 1\na: 2\n", "twice"),
        ("a: 1\n---\nb: 2\n", "single document"),
        ("a: [\n", "not valid YAML"),
        ("a: \x01\n", "not valid YAML"),
        ("- a\n", "mapping"),
        ("name: other\n", "file's name"),
        ("a: " + "[" * 40 + "]" * 40, "nested deeper"),
        ("a: " + "x" * MAX_BYTES, "larger than"),
    ],
)
def test_what_is_no_plain_small_document_is_refused(text: str, says: str) -> None:
    assert any(says in problem for problem in problems(text)), problems(text)


@pytest.mark.parametrize(
    "name", ["../probes/__init__", "/etc/passwd", "a/b", "..", "", "A", "x.yaml", "a\0b", "nosuch"]
)
def test_a_name_that_is_no_playbook_is_never_opened(name: str) -> None:
    with pytest.raises(PlaybookError):
        load(name)
