"""Findings as a person reads them at 3 a.m.: what is wrong first, each with what was seen and what to do."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ncdiag.check import counts
from ncdiag.model import Finding, Status

STYLES = {
    Status.FAIL: "bold red",
    Status.WARN: "yellow",
    Status.UNKNOWN: "magenta",
    Status.OK: "green",
    Status.SKIP: "dim",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: object) -> str:
    """`text` without control characters and direction marks, so that no fact can move the cursor or reorder a line."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def make_console(color: str | None) -> tuple[Console, io.StringIO]:
    """A console that writes into a buffer, as wide as the terminal. `color`: auto, always, never; None for a file."""
    buffer = io.StringIO()
    wanted = color == "always" or (color == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    width = min(shutil.get_terminal_size((100, 40)).columns, 140)
    return Console(
        file=buffer, width=max(width, 60), force_terminal=wanted, no_color=not wanted, highlight=False, soft_wrap=False
    ), buffer


def findings_as_text(nodes: Sequence[str], findings: Sequence[Finding], *, show_all: bool, color: str | None) -> str:
    """Verdict, then findings from the gravest on; `ok` and `skip` are counted, or listed with `show_all`."""
    console, buffer = make_console(color)
    numbers = counts(findings)
    for status in (Status.FAIL, Status.WARN, Status.UNKNOWN, *((Status.OK, Status.SKIP) if show_all else ())):
        for alike in _folded(finding for finding in findings if finding.status is status):
            _print(console, alike, len(nodes))
    console.print(_verdict(nodes, numbers), soft_wrap=True)
    return buffer.getvalue()


def _folded(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several nodes, together."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        node = str(finding.where.get("node", ""))
        rest = tuple((key, str(value)) for key, value in finding.where.items() if key != "node")
        key = (finding.probe, finding.summary.replace(node, "\0") if node else finding.summary, rest, finding.cause)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _print(console: Console, alike: list[Finding], node_count: int) -> None:
    first = alike[0]
    nodes = [str(finding.where["node"]) for finding in alike if "node" in finding.where]
    head = Text()
    head.append(f"{first.status.value:<8}", STYLES[first.status])
    head.append(plain(first.probe), "bold")
    where = [plain(value) for key, value in first.where.items() if key != "node"]
    if node_count > 1 and nodes:
        from ncdiag.nodeset import fold

        where.insert(0, plain(fold(nodes)))
    if where:
        head.append("  " + " ".join(where), "cyan")
    console.print(head, soft_wrap=True)
    lines = Text(plain(first.summary))
    if first.status in (Status.FAIL, Status.WARN, Status.UNKNOWN):
        if first.remedy:
            lines.append("\n→ ", "bold")
            lines.append(plain(first.remedy))
        if first.cause:
            lines.append(f"\ncause {first.cause}", "dim")
            if first.source:
                lines.append(f" · read from {plain(first.source)}", "dim")
    console.print(Padding(lines, (0, 0, 0, 8)))


def _verdict(nodes: Sequence[str], numbers: dict[str, int]) -> Text:
    shown = f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}"
    text = Text(f"\n{shown}: ")
    parts = [
        (status, numbers[status.value]) for status in (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.OK, Status.SKIP)
    ]
    for index, (status, number) in enumerate(parts):
        text.append((", " if index else "") + f"{number} {status.value}", STYLES[status] if number else "dim")
    return text
