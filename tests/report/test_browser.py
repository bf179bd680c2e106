"""The page in a real browser: no console message, no request, nothing cut off, readable in light and dark, on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncdiag.report.compare import compare
from ncdiag.report.html.page import render
from ncdiag.report.result import Result
from ncdiag.report.saved import result_of
from tests.report import chromium, hostile, samples

pytestmark = pytest.mark.skipif(
    chromium.PROGRAM is None, reason="no Chromium here (Debian: apt-get install chromium fonts-dejavu-core)"
)

CONTRAST = """
(() => {
  const parse = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const behind = node => {
    const cell = [...node.classList].find(name => /^h(\\d|none)$/.test(name));
    if (cell) return parse(getComputedStyle(node.ownerSVGElement.querySelector('path.' + cell)).fill);
    const box = node.closest('.box');
    const fill = box && getComputedStyle(box.querySelector('rect')).fill;
    return fill && fill !== 'none' ? parse(fill) : ground(node.ownerSVGElement);
  };
  const weak = [];
  for (const node of document.querySelectorAll('body *')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) || !node.getClientRects().length) continue;
    if (['title', 'desc'].includes(node.tagName)) continue;
    const drawn = node.ownerSVGElement, style = getComputedStyle(node);
    const [one, other] = [light(parse(drawn ? style.fill : style.color)), light(drawn ? behind(node) : ground(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) weak.push(`${ratio.toFixed(2)} ${node.tagName}.${node.getAttribute('class')} ${node.textContent.trim().slice(0, 40)}`);
  }
  return weak;
})()
"""
CUT = """
[...document.querySelectorAll('main *, header *, footer *')].filter(node => {
  if (node.closest('.scroll, .hidden, svg') || !node.getClientRects().length || node.closest('thead[role]')) return false;
  const box = node.getBoundingClientRect();
  return box.right > document.documentElement.clientWidth + 1 || box.left < -1;
}).map(node => node.tagName + '.' + node.className + ' ' + node.textContent.trim().slice(0, 40))
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    with chromium.Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


def everything() -> list[Result]:
    return [
        samples.preflight(),
        samples.hang(),
        result_of(samples.bringup(), "bringup.json"),
        result_of(samples.bandwidth(), "bandwidth.json"),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    results = everything()
    path.write_text(render(results, compare([samples.preflight(2)], results, "old.json")), "utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_it_is_whole_and_readable(
    browser: chromium.Browser, page: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.messages.clear()
    browser.requests.clear()
    browser.size(width, dark=dark)
    browser.open(page)
    browser.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (
        "it scrolls sideways"
    )
    assert browser.value(CUT) == []
    assert browser.value(CONTRAST) == []
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
    assert browser.messages == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {page.as_uri()}


def test_the_keyboard_reaches_the_content_first(browser: chromium.Browser, page: Path) -> None:
    browser.size(1280)
    browser.open(page)
    browser.key("Tab", 9)
    assert browser.value("document.activeElement.textContent") == "Skip to the findings"
    assert browser.value("document.activeElement.getBoundingClientRect().left >= 0"), "the link is not to be seen"
    seen = []
    for _ in range(12):
        browser.key("Tab", 9)
        seen.append(
            browser.value(
                "document.activeElement.tagName + ' ' + document.activeElement.textContent.trim().slice(0, 30)"
            )
        )
        assert browser.value("getComputedStyle(document.activeElement).outlineStyle") != "none", seen[-1]
    assert seen[0].startswith("A Compared"), seen
    assert any(one.startswith("SUMMARY") for one in seen), seen


def test_nothing_moves_for_those_who_want_that(browser: chromium.Browser, page: Path) -> None:
    for motion, expected in ((True, "smooth"), (False, "auto")):
        browser.size(1280, motion=motion)
        browser.open(page)
        assert browser.value("getComputedStyle(document.documentElement).scrollBehavior") == expected


def test_on_paper(browser: chromium.Browser, page: Path, tmp_path: Path) -> None:
    browser.size(1280, dark=True)
    browser.open(page)
    browser.pdf(tmp_path / "page.pdf")
    raw = (tmp_path / "page.pdf").read_bytes()
    assert raw.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", raw)) <= 20
    browser.size(794, media="print", dark=True)
    assert browser.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.value("getComputedStyle(document.body).color") == "rgb(0, 0, 0)", "dark on paper"
    assert browser.value("[...document.querySelectorAll('.stack')].every(one => one.getClientRects().length > 0)"), (
        "closed stacks are not printed"
    )


@pytest.mark.parametrize("name", hostile.PAYLOADS)
def test_hostile_names_do_nothing(browser: chromium.Browser, tmp_path: Path, name: str) -> None:
    if name == "long":
        pytest.skip("nothing hostile in it for a browser")
    browser.messages.clear()
    browser.requests.clear()
    payload = hostile.PAYLOADS[name]
    result = hostile.result(payload)
    (tmp_path / "hostile.html").write_text(
        render([result, result], compare([hostile.result(payload + "x")], [result], payload)), "utf-8"
    )
    browser.size(390)
    browser.open(tmp_path / "hostile.html")
    assert (
        browser.value(
            "document.scripts.length + document.images.length + document.querySelectorAll('iframe, object, embed, form, base').length"
        )
        == 0
    )
    assert browser.value(
        "[...document.querySelectorAll('*')].every(one => one.getAttributeNames().every(name => !name.startsWith('on')))"
    )
    assert browser.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.messages == []
    assert {url for url in browser.requests if not url.startswith("data:")} == {(tmp_path / "hostile.html").as_uri()}
