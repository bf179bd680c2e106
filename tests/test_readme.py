"""What the README says is so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ncdiag.cli import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def shell_lines() -> list[str]:
    """Every command line of ncdiag in the README's shell blocks."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.S) for line in block.splitlines()]
    parts = [part.split("#")[0].strip() for line in lines for part in re.split(r";|\||&&", line.split("  #")[0])]
    return [part for part in parts if part.startswith("ncdiag ")]


def test_help_is_the_real_one() -> None:
    out = subprocess.run(
        [sys.executable, "-m", "ncdiag", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": str(ROOT)},
    ).stdout
    block = re.search(r"## Commands\n\n```text\n(.*?)```", README, re.S)
    assert block and block.group(1).strip() == out.replace("python -m ncdiag", "ncdiag").strip()


@pytest.mark.parametrize("line", shell_lines())
def test_command_lines_are_understood(line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, f"there is no command {name}"
    while isinstance(command, click.Group):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    if "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    used = {argument.split("=")[0] for argument in arguments if argument.startswith("-") and argument != "-"}
    assert used <= known, f"{name} has no {sorted(used - known)}"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)\)", README))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()


def test_ci_runs_the_readmes_test_command() -> None:
    (command,) = [line for line in README.splitlines() if line.endswith("-m pytest")]
    assert command in (ROOT / ".ci" / "run").read_text()
