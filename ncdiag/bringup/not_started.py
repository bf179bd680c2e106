"""A command that could not start at all, as its interpreter or shell says: no rank has died then (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ncdiag.logs import endings
from ncdiag.logs.model import bare
from ncdiag.model import Cause, Evidence

NOT_FOUND, NOT_EXECUTABLE, USAGE = 127, 126, 2
"""Exit statuses of a shell that finds no program or may not run it, and of a program whose arguments are wrong (or a Python without its file)."""
LAST, NEAR = 60, 4
"""Lines at the end of a log that are looked at: for what only an interpreter says; for what a script may also have said on its way."""
_PYTHON = re.compile(
    r"^\S*python[\d.]*\S*: (?:can't open file \S.*\[Errno \d+\]|can't find '__main__' module in|No module named \S|"
    r"Error while finding module specification)"
)
_SHELL = re.compile(
    r"^\S*(?:sh|env|nohup|timeout|nice|stdbuf|numactl|taskset|setsid|xargs|exec)\d*: .*(?:not found|No such file or directory|cannot open|can't open"
    r"|Permission denied|cannot execute)|^\S+: line \d+: .*(?:not found|No such file or directory|Permission denied|cannot execute)"
)
_ARGUMENTS = re.compile(": " + endings.ARGUMENTS)
_WAYS = (
    (_PYTHON, "look at that name and in which folder it is run, or activate the environment that has it"),
    (_SHELL, "look at that path, or activate the environment that has the program"),
    (_ARGUMENTS, "mend that argument; --help of the same command lists what this version takes"),
)


def not_started(logs: Mapping[str, Sequence[str]], exit_code: int | None) -> Cause | None:
    """`exit_code`: of the command."""
    for name, lines in logs.items():
        first = max(len(lines) - LAST, 0)
        for number, line in enumerate(lines[first:], first + 1):
            text = bare(line).strip()
            for pattern, way in _WAYS:
                if pattern.search(text) and (pattern is _PYTHON or _fits(pattern, exit_code, len(lines) - number)):
                    said = [Evidence(name, line, number)]
                    return Cause("unresolved", "likely", f"the command could not start: {text}", {}, said, [], way)
    return None


def _fits(pattern: re.Pattern[str], exit_code: int | None, after: int) -> bool:
    """Whether it is the last that was said, `after` lines before the end, and the status is that of such an end."""
    codes = (USAGE,) if pattern is _ARGUMENTS else (NOT_FOUND, NOT_EXECUTABLE, USAGE)
    return exit_code in codes and after < NEAR
