"""A dozen real vLLM runs, kept in the repository: each is concluded right from processes, stacks and sockets alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ncdiag.hang import infer
from ncdiag.model import RankState
from tests.hang.condense import FIXTURES
from tests.hang.truth import TRUTH, check


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_condensed(path: Path) -> None:
    check(infer([RankState.from_dict(state) for state in json.loads(path.read_text())]), TRUTH[path.stem])
