"""Findings as a person reads them at 3 a.m.: what is wrong first, each with what was seen and what to do."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ncdiag.check import counts
from ncdiag.model import Finding, Status
from ncdiag.report.absent import absent
from ncdiag.report.folding import apart, folded, nodes_of, place
from ncdiag.report.plain import one_line, plain

STYLES = {
    Status.FAIL: "bold red",
    Status.WARN: "yellow",
    Status.UNKNOWN: "magenta",
    Status.OK: "green",
    Status.SKIP: "dim",
}

LINES = 6
"""Findings of one probe with one remedy that are shown."""
SAME = 3
"""Probes that say just the same are named up to this many."""


class Page(io.StringIO):
    """What a console wrote."""

    def text(self) -> str:
        """Its lines, without the blanks that pad them."""
        return "".join(line.rstrip() + "\n" for line in self.getvalue().splitlines())


def make_console(color: str | None) -> tuple[Console, Page]:
    """A console that writes into a buffer, as wide as the terminal. `color`: auto, always, never; None for a file."""
    buffer = Page()
    wanted = color == "always" or (color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    return Console(
        file=buffer, width=max(width, 60), force_terminal=wanted, no_color=not wanted, highlight=False, soft_wrap=False
    ), buffer


def findings_as_text(
    nodes: Sequence[str],
    findings: Sequence[Finding],
    *,
    show_all: bool,
    color: str | None,
    more: str = "",
    note: str = "",
) -> str:
    """Findings from the gravest on, then how many there are; `ok` and `skip` are counted, or listed with `show_all`.

    `more`: what is typed to see them all (`--all`), where something is. `note`: what was looked at, to be read first.
    """
    console, buffer = make_console(color)
    numbers = counts(findings)
    lacking = absent(nodes, findings)
    shows = f" ({more} shows what was skipped)" if more and not show_all else ""
    for text in (note, f"{lacking}: what needs one was not checked{shows}" if lacking else ""):
        if text:
            print_row(console, Text("note", "dim"), Text(plain(text)))
    for status in (Status.FAIL, Status.WARN):
        for groups in _with_one_remedy(folded(finding for finding in findings if finding.status is status), nodes):
            _print_block(console, groups, nodes, None if show_all else LINES, more)
    for status in (Status.UNKNOWN, *((Status.OK, Status.SKIP) if show_all else ())):
        chosen = [finding for finding in findings if finding.status is status]
        for remedy, rows in _by_advice(_with_one_reason(folded(chosen), nodes)):
            for alike, probes in rows:
                _print_line(console, alike, nodes, probes)
            if remedy:
                console.print(Padding(Text("→ " + plain(remedy), "dim"), (0, 0, 0, 8)))
    hidden = more and not show_all and numbers["ok"] + numbers["skip"]
    console.print(_verdict(nodes, numbers).append(f" ({more} shows each)" if hidden else "", "dim"), soft_wrap=True)
    return buffer.text()


def _with_one_remedy(groups: Iterable[list[Finding]], nodes: Sequence[str]) -> list[list[list[Finding]]]:
    """Groups of one probe and the same nodes that one remedy mends are shown together."""
    together: dict[tuple[object, ...], list[list[Finding]]] = {}
    for number, alike in enumerate(groups):
        first = alike[0]
        where = nodes_of(alike, nodes)
        key = (first.probe, where, first.remedy, first.cause, first.source) if first.remedy else (number,)
        together.setdefault(key, []).append(alike)
    return list(together.values())


def _print_block(
    console: Console, groups: list[list[Finding]], nodes: Sequence[str], limit: int | None, more: str
) -> None:
    """What is wrong: a head, then what was seen, what to do and where it was read."""
    first = groups[0][0]
    head = Text(f"{first.status.value:<8}", STYLES[first.status])
    head.append(one_line(first.probe), "bold")
    head.append("  " + place([finding for alike in groups for finding in alike], nodes), "cyan")
    console.print(head, soft_wrap=True)
    lines = Text("\n".join(plain(alike[0].summary + _apart(alike)) for alike in groups[:limit]))
    if limit is not None and len(groups) > limit:
        lines.append(f"\n… {len(groups) - limit} more" + (f" ({more} shows them)" if more else ""), "dim")
    if first.remedy:
        lines.append("\n→ ", "bold").append(plain(first.remedy))
    lines.append(f"\ncause {one_line(first.cause)} · read from {one_line(first.source)}", "dim")
    console.print(Padding(lines, (0, 0, 0, 8)))


def _with_one_reason(groups: Iterable[list[Finding]], nodes: Sequence[str]) -> list[tuple[list[Finding], int]]:
    """Groups, each with the number of probes that say just the same of the same nodes: a node that gave nothing is no 40 findings."""
    same: dict[tuple[str, str], list[list[Finding]]] = {}
    for alike in groups:
        same.setdefault((alike[0].summary, place(alike, nodes)), []).append(alike)
    out: list[tuple[list[Finding], int]] = []
    for several in same.values():
        out += [(several[0], len(several))] if len(several) > SAME else [(alike, 1) for alike in several]
    return out


def _print_line(console: Console, alike: list[Finding], nodes: Sequence[str], probes: int) -> None:
    """What is not wrong, or could not be looked at: one paragraph, with a hanging indent."""
    first = alike[0]
    line = Text(one_line(first.probe) if probes == 1 else f"{probes} probes", "bold")
    where = place(alike, nodes)
    if where:
        line.append(" " + where, "cyan")
    line.append("  ").append(plain(first.summary + _apart(alike)), "")
    print_row(console, Text(first.status.value, STYLES[first.status]), line)


def print_item(console: Console, mark: str, line: str) -> None:
    """One of a list: its mark, and a paragraph that hangs behind it."""
    print_row(console, Text(f"  {mark}"), Text(line), 4)


def print_row(console: Console, head: Text, line: Text, width: int = 8) -> None:
    """A word, and a paragraph that hangs behind its `width` columns."""
    table = Table.grid(padding=(0, 0))
    table.add_column(width=width)
    table.add_column()
    table.add_row(head, line)
    console.print(table)


def _apart(alike: Sequence[Finding]) -> str:
    """That the same is said of more, with other numbers."""
    number = apart(alike)
    return f" (and {number} more like it, with other numbers)" if number else ""


def _by_advice(rows: Iterable[tuple[list[Finding], int]]) -> list[tuple[str, list[tuple[list[Finding], int]]]]:
    """What says how it becomes readable stands above that, each way once; what does not say it comes first."""
    ways: dict[str, list[tuple[list[Finding], int]]] = {"": []}
    for alike, probes in rows:
        ways.setdefault(next((one.remedy for one in alike if one.remedy), ""), []).append((alike, probes))
    return list(ways.items())


def _verdict(nodes: Sequence[str], numbers: dict[str, int]) -> Text:
    shown = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}"
    text = Text(f"\n{shown}: ")
    parts = [
        (status, numbers[status.value]) for status in (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.OK, Status.SKIP)
    ]
    for index, (status, number) in enumerate(parts):
        text.append((", " if index else "") + f"{number} {status.value}", STYLES[status] if number else "dim")
    return text
