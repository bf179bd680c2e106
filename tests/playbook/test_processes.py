"""A list of processes in a record: only those that matter, in columns that are not cut."""

from __future__ import annotations

import os
import re

import pytest

from ncdiag.playbook.loader import load, names
from ncdiag.playbook.processes import ROW_LIMIT, is_list, that_matter
from ncdiag.playbook.record import TEXT_LIMIT, shorten
from ncdiag.playbook.schema import RunStep
from ncdiag.playbook.targets import Target

HEADER = "  PID  PPID STAT COMMAND"
ROWS = (
    "    1     0 Ss   /sbin/init",
    "    2     0 S    [kthreadd]",
    "   10     2 I    [kworker/0:0]",
    "   11     2 D    [nfsiod]",
    "  100     1 Ss   launcher",
    "  101   100 Sl   rank 0",
    "  102   100 Dl   rank 1",
    "  103   102 R    compiler",
    "  200     1 Ss   sshd",
    "  201   200 D    elsewhere",
)
PS = "\n".join([HEADER, *ROWS])


def pids(text: str) -> list[int]:
    return [int(row.split()[0]) for row in text.splitlines()[1:] if not row.startswith("…")]


@pytest.mark.parametrize(
    ("pid", "left"),
    [
        (101, [1, 100, 101, 102, 103]),
        (103, [1, 100, 102, 103]),
        (100, [1, 100, 101, 102, 103]),
        (200, [1, 200, 201]),
        (1, [1, 100, 101, 102, 103, 200, 201]),
        (None, [1, 11, 100, 101, 102, 103, 200, 201]),
        (999, [1, 11, 100, 101, 102, 103, 200, 201]),
    ],
)
def test_the_family_of_the_process_that_is_known(pid: int | None, left: list[int]) -> None:
    text = that_matter(PS, pid)
    assert pids(text) == left
    assert f"… {len(ROWS) - len(left)} rows of" in text


def test_process_2_of_a_container_is_no_kernel_thread() -> None:
    text = "\n".join([HEADER, "    1     0 Ss   sh", "    2     1 Sl   serve", "    3     2 Sl   rank"])
    assert that_matter(text, None) == text


@pytest.mark.parametrize(
    "text", ["", "error: unsupported", "  PID STAT\n1 S", "  PID  PPID STAT COMMAND\nx y z", "PID PPID\n1"]
)
def test_another_form_is_left_as_it_is(text: str) -> None:
    assert that_matter(text, 1) == text


def test_a_long_command_line_is_cut_and_a_long_list_only_between_rows() -> None:
    rows = [f"{n:5}     1 Sl   serve {'x' * 5000}" for n in range(100, 160)]
    text = that_matter("\n".join([HEADER, *rows]), None)
    assert max(map(len, text.splitlines())) == ROW_LIMIT
    short = shorten(text)
    assert len(short) < TEXT_LIMIT + 100
    assert all(line in text.splitlines() for line in short.splitlines() if not line.endswith("left out …"))


def _lists() -> list[tuple[str, ...]]:
    steps = [step for name in names() for step in load(name).steps if isinstance(step, RunStep)]
    return sorted({tuple(step.run) for step in steps if step.run[0] == "ps"})


@pytest.mark.parametrize("argv", _lists(), ids=" ".join)
def test_the_columns_of_every_list_are_wide_enough_and_name_the_family(argv: tuple[str, ...]) -> None:
    fields = argv[argv.index("-o") + 1].split(",")
    assert is_list(argv) and fields[:2] == ["pid", "ppid"]
    assert not {"wchan", "user", "comm"} & set(fields[:-1]), "a column without a width is cut; the last one is not"
    (answer,) = Target("local").run(list(argv), 15)
    assert answer.rc == 0
    family = pids(that_matter(answer.text, os.getpid()))
    assert os.getpid() in family
    assert set(family) < {int(pid) for pid in re.findall(r"^\s*(\d+)", answer.text, re.M)}
