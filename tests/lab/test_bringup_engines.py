"""Real vLLM on CPUs, on one host, on two in its own multi-node mode, and in Ray on two: healthy and broken. The others: tests.lab.matrix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ncdiag.drill import engines
from ncdiag.drill.attempt import run
from ncdiag.drill.engines import make_model
from ncdiag.drill.faults import FAULTS
from ncdiag.drill.hosts import usable

NEEDS = ("vllm", "torch", "ray", "transformers", "click")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.vllm,
    pytest.mark.timeout(500),  # a start has 240 s, one that compiles 400: those say what was seen
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(engines.lacks(*NEEDS) is not None, reason=str(engines.lacks(*NEEDS))),
    pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin") is None, reason="nft is not installed"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.quick and fault.shape != "gloo"])
def test_engine(name: str, model: Path) -> None:
    found, wrong = run(FAULTS[name], model)
    assert not wrong, f"{wrong}\n{found.words}\n{found.a[-3000:]}\n{found.b[-3000:]}"
