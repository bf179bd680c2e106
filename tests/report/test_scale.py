"""A thousand nodes and eight thousand ranks: quick to write, small to mail, readable."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ncdiag.report.formats import written
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import samples
from tests.report.parsed import Page

NODES, RANKS = 1000, 8000


@pytest.fixture(scope="module")
def results() -> list[Result]:
    preflight = samples.preflight(NODES)
    # as many findings as the probes of a real preflight give
    preflight.findings = [
        replace(one, probe=f"{one.probe}-{number}") for number in range(12) for one in preflight.findings
    ]
    assert len(preflight.findings) > 45_000
    return [
        preflight,
        samples.hang(RANKS),
        result_of(samples.bringup(RANKS), "b.json"),
        result_of(samples.bandwidth(NODES, 30), "w.json"),
    ]


def test_html_is_quick_and_small(results: list[Result]) -> None:
    written([samples.preflight()], "html")  # templates are compiled once
    began = time.process_time()
    text = written(results, "html")
    took = time.process_time() - began
    assert took < 2, f"{took:.2f} s"
    assert len(text.encode()) < 5_000_000
    page = Page(text)
    assert "all 1000 nodes" in page.root.text and "0-4000,4002-7999" in page.root.text
    assert len(page.nodes) < 20_000, "a browser has to lay this out"


@pytest.mark.parametrize("format_", ["junit", "prometheus"])
def test_the_others_too(results: list[Result], format_: str) -> None:
    began = time.process_time()
    written(results, format_)
    assert time.process_time() - began < 10
