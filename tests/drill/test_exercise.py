"""Exercises as data: numbers, levels, answers, hints; nothing is started."""

from __future__ import annotations

import pytest

from ncdiag.drill import exercise, screen, trainee
from ncdiag.drill.exercise import Answer
from ncdiag.drill.faults import FAULTS
from ncdiag.playbook.loader import exists


def test_every_fault_has_one_number_that_finds_it() -> None:
    numbers = exercise.numbers()
    assert sorted(fault.name for fault in numbers.values()) == sorted(FAULTS)
    for number, fault in numbers.items():
        assert 1000 <= number <= 9999
        assert exercise.find(str(number)) is fault is exercise.find(fault.name)
        assert exercise.number_of(fault) == number
    assert exercise.find("999") is None and exercise.find("no-such-fault") is None


def test_a_name_keeps_its_number() -> None:
    assert exercise.number_of(FAULTS["gloo-killed"]) == 2958


@pytest.mark.parametrize("name", FAULTS)
def test_every_answer_is_a_playbook_or_says_that_nothing_is_broken(name: str) -> None:
    fault = FAULTS[name]
    assert all(cause in exercise.NOTHING or exists(cause) for cause in fault.causes)
    assert not exercise.wrong_with(fault, Answer(fault.causes[0], fault.node, fault.rank))


def test_what_is_picked_keeps_a_job_from_coming_up_and_the_seed_decides() -> None:
    picked = [exercise.pick(FAULTS.values(), seed) for seed in range(200)]
    assert all(fault and fault.causes[0] not in exercise.NOTHING and not fault.probe for fault in picked)
    assert exercise.pick(FAULTS.values(), 7) is picked[7]
    assert len({fault.name for fault in picked if fault}) > 20
    assert exercise.pick([FAULTS["gloo-healthy"]], 1) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rank-died", Answer("rank-died")),
        ("rank-died b", Answer("rank-died", "b")),
        ("rank-died on host b, rank 1", Answer("rank-died", "b", 1)),
        ("rank-died rank1", Answer("rank-died", None, 1)),
        ("rank-died 1", Answer("rank-died", None, 1)),
    ],
)
def test_an_answer_is_read(words: str, expected: Answer) -> None:
    assert exercise.read_answer(words, ("a", "b")) == expected


def test_a_place_that_is_none_is_said() -> None:
    assert "'gpu07' is no host and no rank" in str(exercise.read_answer("rank-died gpu07", ("a", "b")))


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (Answer("rank-died"), ""),
        (Answer("rank-died", "b", 1), ""),
        (Answer("rank-died", "a"), "the cause is right, the place is not"),
        (Answer("rank-died", "b", 0), "the cause is right, the place is not"),
        (Answer("rank-missing", "b"), "that is not it"),
    ],
)
def test_an_answer_is_judged(answer: Answer, wrong: str) -> None:
    assert exercise.wrong_with(FAULTS["gloo-killed"], answer) == wrong


@pytest.mark.parametrize("name", FAULTS)
def test_hints_go_from_vague_to_plain_and_end_with_the_cause_among_three(name: str) -> None:
    fault = FAULTS[name]
    *vague, last = exercise.hints(fault, 3)
    assert fault.causes[0] in last and not any(fault.causes[0] in hint for hint in vague)
    assert exercise.hints(fault, 3) == [*vague, last]


def test_the_list_gives_nothing_away_unless_it_is_told_to() -> None:
    lacking: dict[str, list[str]] = {}
    shown = screen.exercises(exercise.numbers(), lacking, spoil=False, color="never")
    spoilt = screen.exercises(exercise.numbers(), lacking, spoil=True, color="never")
    for number, fault in exercise.numbers().items():
        assert str(number) in shown and fault.name in spoilt and fault.what in " ".join(spoilt.split())
        assert fault.name not in shown and not any(cause in shown for cause in fault.causes if "-" in cause)


def test_the_list_of_answers_keeps_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, f"{trainee.HELP}{screen.titles(screen.causes())}".splitlines())) <= 80
