"""The page as such: self-contained, well formed, with what screen readers and keyboards need."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from ncdiag.model import fail
from ncdiag.report.compare import compare
from ncdiag.report.html.page import render
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import samples
from tests.report.parsed import Node, Page

RESULTS = {
    "preflight": [samples.preflight()],
    "one-node": [samples.preflight(1)],
    "hang": [samples.hang()],
    "bringup": [result_of(samples.bringup(), "bringup.json")],
    "many-ranks": [result_of(samples.bringup(300), "bringup.json"), samples.hang(300)],
    "bandwidth": [result_of(samples.bandwidth(), "bandwidth.json")],
    "many-pairs": [result_of(samples.bandwidth(90), "bandwidth.json")],
    "all": [
        samples.preflight(),
        samples.hang(),
        result_of(samples.bringup(), "b.json"),
        result_of(samples.bandwidth(), "w.json"),
    ],
    "nothing": [Result("preflight")],
}


@pytest.fixture(params=RESULTS)
def page(request: pytest.FixtureRequest) -> Page:
    results = RESULTS[request.param]
    return Page(
        render(results, compare([samples.preflight(2)], results, "old.json") if request.param == "all" else None)
    )


def test_it_asks_for_nothing(page: Page) -> None:
    assert not page.all(
        "script", "iframe", "object", "embed", "img", "form", "base", "audio", "video", "use", "image", "foreignobject"
    )
    for node in page.nodes:
        for name, value in node.attributes.items():
            assert not name.startswith("on"), (node.tag, name)
            if name in ("href", "src", "xlink:href"):
                assert value == "data:," or re.fullmatch(r"#[\w-]+", value), value
            assert "url(" not in value
    (style,) = page.all("style")
    assert "url(" not in style.text and "@import" not in style.text
    (policy,) = (node for node in page.all("meta") if node.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_every_link_and_label_has_its_target(page: Page) -> None:
    ids = [node.attributes["id"] for node in page.nodes if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in page.nodes:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(node.attributes.get(name, "").split()) <= set(ids), node.attributes
        if node.attributes.get("href", "").startswith("#"):
            assert node.attributes["href"][1:] in ids


def test_headings_go_down_one_level_at_a_time(page: Page) -> None:
    levels = [int(node.tag[1]) for node in page.all("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1 and levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_landmarks_and_language(page: Page) -> None:
    assert page.all("html")[0].attributes["lang"] == "en"
    assert page.all("title")[0].text.strip()
    for tag in ("header", "nav", "main", "footer"):
        assert len(page.all(tag)) == 1
    first = next(node for node in page.nodes if node.tag == "a")
    assert first.attributes["href"] == "#content", "the first stop of the keyboard skips to the content"


def test_tables_say_what_they_are(page: Page) -> None:
    for table in page.all("table"):
        assert table.children[0].tag == "caption" and table.children[0].text.strip()
    for head in page.all("th"):
        assert head.attributes.get("scope") in ("col", "row")
    for region in page.nodes:
        if "scroll" in region.attributes.get("class", "").split():
            assert region.attributes["tabindex"] == "0" and region.attributes["aria-label"]


def test_pictures_are_told_in_words(page: Page) -> None:
    for picture in page.all("svg"):
        named = picture.attributes.get("aria-label") or picture.attributes.get("aria-labelledby")
        assert picture.attributes.get("aria-hidden") == "true" or (picture.attributes["role"] == "img" and named)
        if "aria-labelledby" in picture.attributes:
            assert {"title", "desc"} <= {child.tag for child in picture.children}


def test_a_status_is_never_told_by_colour_alone(page: Page) -> None:
    for node in page.nodes:
        if "badge" in node.attributes.get("class", "").split():
            assert re.search(r"[A-Za-z]{2}", node.text)
    for node in page.all("details"):
        assert node.children[0].tag == "summary" and node.children[0].text.strip()


def test_what_is_wrong_stands_before_the_rest() -> None:
    page = Page(render([samples.preflight()]))
    assert "2 things on gpu[02,04] will stop the engine or keep it from working." in page.all("h1")[0].text
    kinds = [
        node.attributes["class"].split()[1]
        for node in page.all("article")
        if "finding" in node.attributes.get("class", "")
    ]
    assert kinds == ["fail", "fail", "warn", "warn"]


def test_nodes_are_folded_and_figures_have_their_source() -> None:
    page = Page(render([samples.preflight()]))
    clock = next(
        node
        for node in page.all("article")
        if "not synchronised" in node.text and "finding" in node.attributes["class"]
    )
    assert "all 4 nodes" in clock.text and "adjtimex" in clock.text and "clock-skew" in clock.text
    assert "/sys/class/infiniband/mlx5_3/ports/1/state" in page.root.text


def test_faults_are_marked_in_the_topology() -> None:
    page = Page(render([samples.preflight()]))
    boxes = [node for node in page.all("g") if "fault-" in node.attributes.get("class", "")]
    assert [(node.attributes["class"].split()[1:], node.children[0].texts[0].split()[0]) for node in boxes] == [
        (["nic", "fault-fail"], "mlx5_3"),
        (["gpu", "fault-warn"], "GPU"),
    ]
    assert len(page.all("article")) - 4 == 2, "nodes that are built alike are drawn once"


def test_every_name_of_a_path_that_is_shown_is_explained() -> None:
    page = Page(render([samples.preflight()]))
    explained = {term.text.strip() for term in page.all("dt") if "paths" in _classes_above(term)}
    uses = [node for node in page.all("table") if node.attributes.get("class") == "uses"]
    shown = {kind for table in uses for kind in re.findall(r"\b(?:PIX|PXB|PHB|SYS|P2C|PXN)\b", table.text)}
    assert shown and shown <= explained


def test_a_badge_of_a_cause_is_explained_where_there_are_causes() -> None:
    keys = [
        [n.text for n in Page(render([one])).all("p") if n.attributes.get("class") == "key"]
        for one in (samples.hang(), samples.preflight())
    ]
    assert "Likely" in keys[0][1] and len(keys[1]) == 1


def test_the_culprit_stands_first_among_the_ranks() -> None:
    page = Page(render([samples.hang()]))
    table = next(node for node in page.all("table") if node.attributes.get("class") == "ranks")
    rows = [
        row
        for row in page.all("tr")
        if "tbody" in row.up() and table.tag in row.up() and "culprit" in row.attributes.get("class", "")
    ]
    assert len(rows) == 1 and "holds up the others" in rows[0].text and "tokenize" in rows[0].text
    assert "0-4,6-7" in table.text


def test_of_thousands_the_slowest_are_drawn() -> None:
    page = Page(render([result_of(samples.bringup(300), "b.json")]))
    gantt = next(node for node in page.all("table") if node.attributes.get("class") == "gantt")
    assert "rank 298" in gantt.text and "40 slowest and quickest of 300" in gantt.text
    assert len([node for node in page.all("svg") if "gantt" in _classes_above(node)]) == 41


def _classes_above(node: Node) -> list[str]:
    return [] if node.parent is None else [node.parent.attributes.get("class", ""), *_classes_above(node.parent)]


def test_a_slow_pair_is_never_averaged_away() -> None:
    page = Page(render([result_of(samples.bandwidth(90), "b.json")]))
    assert "slowest pair between two groups of up to 3 nodes" in page.root.text
    paths = {node.attributes["class"] for node in page.all("path") if node.attributes.get("class", "").startswith("h")}
    assert {"hnone", "h1"} <= paths


def test_a_damaged_machine_is_said_not_drawn() -> None:
    result = samples.preflight()
    result.machines[0] = {"name": "gpu01", "gpus": [{}], "tree": None}
    assert "cannot be drawn" in Page(render([result])).root.text


def test_when_where_and_by_which_ncdiag_it_was_run() -> None:
    page = Page(render([result_of(samples.bandwidth(), "bandwidth.json")]))
    kicker = next(node for node in page.nodes if node.attributes.get("class") == "kicker")
    assert kicker.text.endswith("2026-02-03 04:05:06 UTC, ncdiag 0.1.0 on login1")
    assert "8 nodes: gpu[01-08]" in page.root.text
    assert "at a time that was not recorded" in Page(render([Result("preflight")])).root.text


def test_what_a_rank_printed_before_it_failed_is_shown() -> None:
    page = Page(render([result_of(samples.bandwidth(), "bandwidth.json")]))
    lines = [node.text for node in page.all("code") if "printed" in node.parent.parent.attributes.get("class", "")]  # type: ignore[union-attr]
    assert lines == ["gpu06: libibverbs: no device", "RuntimeError: ncclSystemError"]
    assert "rank 5 in its log, its last lines" in page.root.text


def test_nothing_is_shown_as_json() -> None:
    seen = {
        "name": "a",
        "addresses": ["127.0.0.1"],
        "max_error_s": 16.0,
        "error": None,
        "hosts": [{"line": 3, "ok": True}],
    }
    finding = replace(fail("it is so", "a", observed=seen, source="s", cause="clock-skew"), probe="clock")
    shown = next(node.text for node in Page(render([Result("preflight", findings=[finding])])).all("dd"))
    assert shown.strip() == "name: a, addresses: 127.0.0.1, max error: 16.0 s, hosts: (line: 3, ok: yes)"
