"""A small gloo job on two hosts, healthy and broken: right cause, right node or rank, right stage."""

from __future__ import annotations

import shutil

import pytest

from ncdiag.drill import engines
from ncdiag.drill.attempt import run
from ncdiag.drill.faults import FAULTS
from ncdiag.drill.hosts import usable

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(engines.lacks("torch", "click") is not None, reason=str(engines.lacks("torch", "click"))),
    pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None, reason="nft is not installed"),
]


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.quick and fault.shape == "gloo"])
def test_gloo(name: str) -> None:
    found, wrong = run(FAULTS[name])
    assert not wrong, f"{wrong}\n{found.words}\n{found.a[-2000:]}\n{found.b[-2000:]}"
