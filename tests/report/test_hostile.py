"""Whatever a fact holds, it stays text: in HTML, JUnit, Prometheus, on the console and in JSON."""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ncdiag.report import formats, junit, prometheus
from ncdiag.report.compare import compare
from ncdiag.report.html.page import render
from ncdiag.report.read import Saved
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import hostile, samples
from tests.report.parsed import Page

KNOWN = {
    node.tag
    for node in Page(
        render(
            [
                samples.preflight(),
                samples.hang(),
                result_of(samples.bringup(), "b"),
                result_of(samples.bandwidth(), "w"),
            ]
        )
    ).nodes
}
EXTRA = {"h4"}
payloads = pytest.mark.parametrize("payload", hostile.PAYLOADS.values(), ids=hostile.PAYLOADS.keys())


def unsafe(text: str) -> list[str]:
    """Characters that move a cursor, reorder or hide text, or are none."""
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs") and char not in "\n\t"]


@payloads
def test_html(payload: str) -> None:
    result = hostile.result(payload)
    text = render([result, result], compare([hostile.result(payload + "x")], [result], payload), payload)
    assert not unsafe(text)
    assert "hf_aBcD1234aBcD1234aBcD" not in text
    text.encode()
    page = Page(text)
    assert {node.tag for node in page.nodes} <= KNOWN | EXTRA
    assert len(page.all("style")) == 1 and len(page.all("title", "meta")) >= 5
    clean = {name for node in page.nodes for name in node.attributes}
    assert not [name for name in clean if not re.fullmatch(r"[a-zA-Z-]+", name) or name.startswith("on")]
    assert all(
        value == "data:," or value.startswith("#")
        for node in page.nodes
        for name, value in node.attributes.items()
        if name in ("href", "src")
    )
    assert "49" not in page.all("title")[0].text, "a template in a fact was run"


@payloads
def test_junit(payload: str) -> None:
    result = hostile.result(payload)
    text = junit.render([result], compare([result], [result], payload))
    assert not unsafe(text) and "hf_aBcD1234aBcD1234aBcD" not in text
    root = ElementTree.fromstring(text.encode())
    assert {element.tag for element in root.iter()} <= {
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "error",
        "skipped",
        "system-out",
        "properties",
        "property",
    }
    assert len(list(root.iter("testcase"))) == len(result.findings) + 2


@payloads
def test_prometheus(payload: str) -> None:
    result = hostile.result(payload)
    text = prometheus.render([result])
    assert not unsafe(text) and "hf_aBcD1234aBcD1234aBcD" not in text
    families = {family.name for family in text_string_to_metric_families(text)}
    assert families == {
        family.name for family in text_string_to_metric_families(prometheus.render([samples.preflight()]))
    }


@payloads
def test_console(payload: str) -> None:
    result = hostile.result(payload)
    comparison = compare([hostile.result(payload + "x")], [result], payload)
    for change in (
        {},
        {"kind": ""},
        {"kind": "", "causes": []},
        {"kind": "", "causes": [], "lanes": [], "events": [], "pairs": [], "steps": [], "outcome": ""},
    ):
        shown = Result(**{**vars(result), **change})
        text = formats.as_text([Saved(shown)], comparison, show_all=True, color=None)
        assert not unsafe(text)
        text.encode()


@payloads
def test_names_begin_no_line_of_their_own(payload: str) -> None:
    """A node's name with a line break in it cannot pretend to be a verdict."""
    text = formats.as_text(
        [Saved(Result("preflight", nodes=["a", payload], findings=hostile.result(payload).findings))],
        None,
        show_all=False,
        color=None,
    )
    assert not [line for line in text.splitlines() if line.startswith("ok      all is well")]


@payloads
def test_json_and_back(payload: str) -> None:
    result = hostile.result(payload)
    text = formats.as_json([Saved(result)], compare([result], [result], payload), 1)
    assert not unsafe(text) and "hf_aBcD1234aBcD1234aBcD" not in text
    again = result_of(json.loads(text), payload)
    assert not unsafe(render([again]))
