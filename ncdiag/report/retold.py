"""On the terminal: comparisons, and saved starts and measurements told again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ncdiag.model import Status
from ncdiag.nodeset import fold
from ncdiag.report.causes import causes_as_text
from ncdiag.report.compare import Comparison, Item
from ncdiag.report.console import STYLES, findings_as_text, make_console, print_row
from ncdiag.report.folding import unnamed
from ncdiag.report.headline import headline
from ncdiag.report.html.heatmap import slowest
from ncdiag.report.html.timeline import spread
from ncdiag.report.plain import one_line, plain
from ncdiag.report.result import Result, Step

TITLES = {
    "new": ("new", "bold red"),
    "fixed": ("fixed", "bold green"),
    "not_judged": ("not judged again, may still be", "bold magenta"),
    "unchanged": ("unchanged", "bold"),
}
PAIRS = 10


def comparison_as_text(comparison: Comparison, *, color: str | None) -> str:
    """New, fixed, not judged again and unchanged, in that order; what is unknown as before is only counted."""
    console, buffer = make_console(color)
    console.print(Text(f"compared with {one_line(comparison.against)}", "bold"))
    lists = dict(comparison.lists())
    for name, (title, style) in TITLES.items():
        items = lists[name]
        console.print(Text(f"{len(items):,} {title}", style if items else "dim"))
        for status, line in _lines(
            items if name != "unchanged" else [item for item in items if item.status is not Status.UNKNOWN]
        ):
            print_row(console, Text(f"  {status.value}", STYLES[status]), line, 10)
    return buffer.text()


def _lines(items: list[Item]) -> list[tuple[Status, Text]]:
    grouped: dict[tuple[object, ...], list[Item]] = {}
    for item in items:
        summary = unnamed(item.summary, item.node)
        grouped.setdefault((item.status, item.what, item.rest, summary), []).append(item)
    lines = []
    for alike in grouped.values():
        first = alike[0]
        line = Text(one_line(first.what), "bold")
        where = f"{fold(item.node for item in alike if item.node)} {first.rest}".strip()
        line.append(f"  {one_line(where)}" if where else "", "cyan")
        line.append("  " + plain(first.summary))
        lines.append((first.status, line))
    return lines


def figures_as_text(result: Result, *, show_all: bool, color: str | None) -> str:
    """A start or a bandwidth run: its outcome, its figures, what took longest, what was slowest, its causes and findings."""
    console, buffer = make_console(color)
    head = headline(result)
    line = Text(f"{head.status.value.upper():<8}", STYLES[head.status])
    console.print(line.append(plain(head.text), "bold"))
    for fact in result.facts:
        print_row(console, Text(), Text(f"{one_line(fact.name)}: {plain(fact.value)} ({plain(fact.source)})"))
    for event in result.events:
        console.print(
            Text(f"{'':8}at {event.at_s:.1f} s {one_line(event.what)} {one_line(event.more)}".rstrip(), "dim")
        )
    stages = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("stage", "processes", "least", "median", "most", "who took the most"):
        stages.add_column(name)
    for row in spread(result.lanes):
        stages.add_row(*(plain(str(row[key])) for key in ("stage", "count", "least", "median", "most", "who")))
    if result.lanes:
        console.print(stages)
    for (op, place), step in _largest(result.steps).items():
        console.print(
            Text(
                f"{'':8}{one_line(op)} {'in place' if place else 'out of place'}: {step.busbw_gbytes_s:.4g} GB/s at {step.size_bytes:,} bytes"
            )
        )
    for pair in slowest(result.pairs, PAIRS):
        told = " ".join(
            one_line(part) for part in (pair["measured"], pair["share"] and f"({pair['share']})", pair["note"]) if part
        )
        console.print(Text(f"{'':8}{one_line(pair['one'])} – {one_line(pair['other'])}: {told}"))
    causes = (
        causes_as_text(result.causes, next_=result.next, notes=result.notes, show_all=show_all, color=color)
        if result.causes
        else ""
    )
    findings = (
        findings_as_text(result.nodes, result.findings, show_all=show_all, color=color, more="--all")
        if result.findings
        else ""
    )
    return "\n".join(part for part in (buffer.text(), causes, findings) if part)


def _largest(steps: Sequence[Step]) -> dict[tuple[str, bool], Step]:
    """The largest size of each operation."""
    return {(step.op, step.in_place): step for step in sorted(steps, key=lambda step: step.size_bytes)}
