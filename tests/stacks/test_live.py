"""The same programs, run now and looked at with ncdiag's own sampler. Those that need torch run where there is torch."""

from __future__ import annotations

import sys

import pytest

from ncdiag.hang import infer
from tests.stacks.cases import CASES, Case, can_hide_resolver, torch_python
from tests.stacks.record import look
from tests.stacks.test_recorded import check

TORCH = torch_python()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_live(case: Case) -> None:
    if case.private and not can_hide_resolver():
        pytest.skip("needs root, unshare and ip, to have a name server that never answers")
    if case.torch and TORCH is None:
        pytest.skip("no torch: name an interpreter that has it in NCDIAG_LAB_PYTHON")
    check(case, infer(look(case, TORCH if case.torch and TORCH else sys.executable)))
