"""What is no number in a saved result is no number in what is written of it: the JSON stays JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner

from ncdiag.cli import cli


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_no_number(tmp_path: Path, number: str) -> None:
    finding = f'{{"probe": "x", "status": "fail", "where": {{"node": "a"}}, "summary": "s", "observed": {number}}}'
    (tmp_path / "r.json").write_text(
        f'{{"schema": 1, "command": "preflight", "nodes": ["a"], "findings": [{finding}], "counts": {{}}, "exit": 1}}'
    )
    for form in ("json", "text", "html", "junit", "prometheus"):
        done = CliRunner().invoke(cli, ["report", str(tmp_path / "r.json"), "--format", form], standalone_mode=False)
        assert done.exception is None and done.stdout
        if form == "json":
            assert json.loads(done.stdout, parse_constant=refuse)["findings"][0]["observed"] == number
