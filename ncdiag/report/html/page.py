"""Results -> the page."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ncdiag import __version__, redact
from ncdiag.nodeset import fold
from ncdiag.report.absent import absent
from ncdiag.report.compare import Comparison
from ncdiag.report.headline import headline
from ncdiag.report.html import findings, heatmap, ranks, stacks, sweep, timeline, topology
from ncdiag.report.plain import one_line, plain
from ncdiag.report.printed import title as title_of
from ncdiag.report.result import Result

LABELS = {"fail": "Fail", "warn": "Warn", "unknown": "Unknown", "ok": "Ok", "skip": "Does not apply"}
SIGNS = {"fail": "✕", "warn": "!", "unknown": "?", "ok": "✓", "skip": "–"}
"""Beside the word and the colour: a status is never told by colour alone."""


def render(results: Sequence[Result], comparison: Comparison | None = None, title: str = "") -> str:
    """One page over all of them, the gravest verdict on top."""
    parts = [_part(result, f"r{index}") for index, result in enumerate(results)]
    top = max(parts, key=lambda part: part["head"].status.severity)
    names = list(dict.fromkeys(result.command for result in results))
    style = resources.files("ncdiag.report.html").joinpath("templates/style.css").read_text("utf-8")
    text: str = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title or one_line("ncdiag " + ", ".join(names)),
            style=Markup(style),
            version=__version__,
            top=top,
            parts=parts,
            comparison=findings.compared(comparison) if comparison is not None else None,
            labels=LABELS,
            signs=SIGNS,
        )
    )
    return text


def _part(result: Result, anchor: str) -> Mapping[str, Any]:
    """Everything that the templates show of one result; sections without content are empty."""
    return {
        "id": anchor,
        "result": result,
        "head": headline(result),
        "names": one_line(fold(result.nodes)),
        "absent": absent(result.nodes, result.findings),
        "findings": findings.view(result),
        "causes": findings.causes(result),
        "ranks": ranks.view(result),
        "printed": [{"title": title_of(told), "lines": told.lines} for told in result.printed],
        "stacks": stacks.view(result),
        "machines": topology.views(result),
        "timeline": timeline.view(result),
        "heatmap": heatmap.view(result.pairs),
        "sweep": sweep.view(result.steps),
    }


def _safe(value: Any) -> Any:
    """What every expression of a template goes through: secrets masked, control characters and direction marks out."""
    return value if hasattr(value, "__html__") or not isinstance(value, str) else plain(redact.text(value))


@functools.lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("ncdiag.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
