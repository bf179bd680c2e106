"""Causes as a person reads them: the verdict first, its evidence with file and line, what is not the cause, what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ncdiag import redact
from ncdiag.model import SCHEMA, Cause, Evidence
from ncdiag.report.console import make_console, print_item
from ncdiag.report.plain import one_line, plain
from ncdiag.report.run import now
from ncdiag.report.wrapped import wrapped

STYLES = {"sure": "bold red", "likely": "yellow", "possible": "magenta"}
GOOD = ("healthy", "slow-not-hung")
QUIET = (*GOOD, "unresolved")
"""Causes that have no confidence to show and no playbook."""
_FITS = re.compile(r"^fits(?:, too)?: ")
_LINES_SHOWN = 4
_INDENT = 4
_WIDTH = 180  # characters of a file's line with its place
_LEAST = 160  # of the line alone, however long the file's path is


def causes_as_json(
    command: str,
    causes: Sequence[Cause],
    *,
    ranks: Sequence[Any] = (),
    communicators: Sequence[Any] = (),
    next_: Sequence[str] = (),
    notes: Sequence[str] = (),
    code: int,
) -> str:
    """`{"schema", "command", "run", "causes", "ranks", "communicators", "next", "notes", "exit"}`, the first cause first."""
    return json.dumps(
        redact.data(
            {
                "schema": SCHEMA,
                "command": command,
                "run": now().as_dict(),
                "causes": [cause.as_dict() for cause in causes],
                "ranks": list(ranks),
                "communicators": list(communicators),
                "next": list(next_),
                "notes": list(notes),
                "exit": code,
            }
        ),
        indent=1,
    )


def causes_as_text(
    causes: Sequence[Cause],
    *,
    next_: Sequence[str] = (),
    notes: Sequence[str] = (),
    sources: Sequence[str] = (),
    show_all: bool = False,
    more: str = "--all",
    color: str | None,
) -> str:
    """The ranked list. With `show_all` every evidence line. `more`: what is typed to see them all."""
    console, buffer = make_console(color)
    told: dict[str, Cause] = {}
    for index, cause in enumerate(causes):
        _print(
            console,
            cause if show_all else _briefly(cause, told),
            None if show_all else _LINES_SHOWN if index == 0 else 2,
            more,
        )
    if next_:
        console.print(Text("next, to be surer:", "bold"))
        for step in next_:
            print_item(console, "·", plain(step))
    for note in notes:
        console.print(Text(wrapped("note: " + plain(note), "      "), "dim"), soft_wrap=True)
    if sources:
        console.print(Text(f"read {len(sources)} source{'s' if len(sources) != 1 else ''}", "dim"))
    return buffer.text()


def _briefly(cause: Cause, told: dict[str, Cause]) -> Cause:
    """Several causes that fit one line say it once. `told`: what was said by which cause first, and is added to."""
    said = _FITS.sub("", cause.summary)
    if said not in told or cause.cause in QUIET:
        told.setdefault(said, cause)
        return cause
    first = told[said]
    rest = [item for item in cause.evidence if item not in first.evidence]
    return replace(cause, summary=f"fits the same lines as {one_line(first.cause)}", evidence=rest)


def _print(console: Console, cause: Cause, limit: int | None, more: str) -> None:
    """One cause. Lines of files are wrapped for a terminal only, and `file:line` stays in one piece."""
    head = Text()
    head.append(
        cause.cause if cause.cause in QUIET else f"{cause.confidence:<9}" + one_line(cause.cause),
        "green" if cause.cause in GOOD else STYLES.get(cause.confidence, ""),
    )
    where = [one_line(f"{key} {value}") for key, value in cause.where.items() if value not in (None, "")]
    if where:
        head.append("  " + ", ".join(where), "cyan")
    console.print(head, soft_wrap=True)
    body = Text(plain(cause.summary))
    if cause.remedy:
        body.append("\n→ ", "bold")
        body.append(plain(cause.remedy))
    console.print(Padding(body, (0, 0, 0, _INDENT)))
    _print_lines(console, cause.evidence, limit, more)
    for title, lines in beside(cause):
        console.print(Text(" " * _INDENT + title + ":", "dim"))
        _print_lines(console, lines, limit, more)
    if cause.cause not in QUIET:
        console.print(Text(" " * _INDENT + f"ncdiag playbook run {one_line(cause.playbook)}", "dim"))
    console.print()


def beside(cause: Cause) -> list[tuple[str, Sequence[Evidence]]]:
    """Lines that are not its evidence, each kind with what it is: what works has no consequences, and what is not known neither."""
    quiet = cause.cause in QUIET or cause.confidence == "possible"
    other = "noise, since it works" if cause.cause == "healthy" else "seen with it"
    kinds = (
        (other if quiet else "not the cause, follows from it", cause.secondary),
        (other if quiet else "also seen; whether it follows is not known", cause.also_seen),
    )
    return [(title, lines) for title, lines in kinds if lines]


def _print_lines(console: Console, items: Sequence[Evidence], limit: int | None, more: str) -> None:
    shown = items[:limit]
    for item in shown:
        place = one_line(item.source) + (f":{item.line}" if item.line is not None else "")
        room = max(_WIDTH - len(place), _LEAST)
        text = plain(item.text)
        line = " " * _INDENT + f"{place}  {text if len(text) <= room else text[:room] + '…'}"
        console.print(Text(wrapped(line, " " * (_INDENT + 2)), "dim"), soft_wrap=True)
    if len(shown) < len(items):
        console.print(Text(" " * _INDENT + f"… {len(items) - len(shown)} more ({more} shows all)", "dim"))
