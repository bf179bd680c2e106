"""Causes as a person reads them: the verdict first, its evidence with file and line, what is not the cause, what to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from ncdiag import redact
from ncdiag.model import SCHEMA, Cause, Evidence
from ncdiag.report.console import make_console, plain

STYLES = {"sure": "bold red", "likely": "yellow", "possible": "magenta"}
GOOD = ("healthy", "slow-not-hung")
_LINES_SHOWN = 4


def causes_as_json(command: str, causes: Sequence[Cause], *, ranks: Sequence[Any] = (), communicators: Sequence[Any] = (), next_: Sequence[str] = (), notes: Sequence[str] = (), code: int) -> str:
    """`{"schema", "command", "causes", "ranks", "communicators", "next", "notes", "exit"}`, the first cause first."""
    return json.dumps(redact.data({"schema": SCHEMA, "command": command, "causes": [cause.as_dict() for cause in causes], "ranks": list(ranks), "communicators": list(communicators),
                                   "next": list(next_), "notes": list(notes), "exit": code}), indent=1)


def causes_as_text(causes: Sequence[Cause], *, next_: Sequence[str] = (), notes: Sequence[str] = (), sources: Sequence[str] = (), show_all: bool = False, color: str | None) -> str:
    """The ranked list. With `show_all` every evidence line."""
    console, buffer = make_console(color)
    for index, cause in enumerate(causes):
        style = "green" if cause.cause in GOOD else STYLES.get(cause.confidence, "")
        head = Text()
        head.append(cause.cause if cause.cause in GOOD + ("unresolved",) else f"{cause.confidence:<9}" + cause.cause, style)
        where = [f"{key} {plain(value)}" for key, value in cause.where.items() if value not in (None, "")]
        if where:
            head.append("  " + ", ".join(where), "cyan")
        console.print(head, soft_wrap=True)
        body = Text(plain(cause.summary))
        if cause.remedy:
            body.append("\n→ ", "bold")
            body.append(plain(cause.remedy))
        shown = cause.evidence if show_all else cause.evidence[: _LINES_SHOWN if index == 0 else 2]
        for item in shown:
            body.append("\n" + _line(item), "dim")
        if len(shown) < len(cause.evidence):
            body.append(f"\n… {len(cause.evidence) - len(shown)} more lines (-v shows all)", "dim")
        if cause.secondary:
            body.append("\nnot the cause, follows from it:", "dim")
            for item in cause.secondary if show_all else cause.secondary[:3]:
                body.append("\n" + _line(item), "dim")
        if cause.cause not in GOOD + ("unresolved",):
            body.append(f"\nncdiag playbook {cause.playbook}", "dim")
        console.print(Padding(body, (0, 0, 1, 4)))
    if next_:
        console.print(Text("next, to be surer:", "bold"))
        for step in next_:
            console.print(Text("  · " + plain(step)))
    for note in notes:
        console.print(Text("note: " + plain(note), "dim"), soft_wrap=True)
    if sources:
        console.print(Text(f"read {len(sources)} source{'s' if len(sources) != 1 else ''}", "dim"))
    return buffer.getvalue()


def _line(item: Evidence) -> str:
    place = plain(item.source) + (f":{item.line}" if item.line is not None else "")
    text = plain(item.text)
    return f"{place}  {text if len(text) <= 220 else text[:220] + '…'}"
