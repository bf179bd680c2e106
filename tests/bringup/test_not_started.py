"""A command that could not start is told from one that ran and ended."""

from __future__ import annotations

import pytest

from ncdiag.bringup.not_started import not_started

FILE = "/opt/env/bin/python3: can't open file '/nonexistent/train.py': [Errno 2] No such file or directory"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (FILE, 2),
        (f"[rank1]:{FILE}", 1),
        ("/usr/bin/python3.11: No module named vllm", 1),
        ("sh: 1: vllm: not found", 127),
        ("/opt/start.sh: line 3: vllm: command not found", 127),
        ("env: ‘vllm’: No such file or directory", 127),
        ("bash: /opt/serve.sh: Permission denied", 126),
        ("sh: 0: cannot open /opt/serve.sh: No such file", 2),
        ("vllm serve: error: unrecognized arguments: --tpp 2", 2),
    ],
)
def test_who_could_not_start_says_so_itself(line: str, status: int) -> None:
    cause = not_started({"log": ["before", line]}, status)
    assert cause is not None and cause.cause == "unresolved" and "could not start" in cause.summary and cause.remedy
    assert (cause.evidence[0].source, cause.evidence[0].line) == ("log", 2)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["sh: 1: nvidia-smi: not found"], 1),
        (["sh: 1: nvidia-smi: not found", *["INFO it goes on"] * 9], 127),
        (["ModuleNotFoundError: No module named 'flash_attn'"], 1),
        (["FileNotFoundError: [Errno 2] No such file or directory: '/m'"], 2),
        ([FILE, *["INFO another one"] * 100], 2),
    ],
)
def test_what_a_program_misses_on_its_way_is_another_thing(lines: list[str], status: int) -> None:
    assert not_started({"log": lines}, status) is None
