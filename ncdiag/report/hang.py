"""The hang verdict as a tired person reads it in ten seconds, and as automation does: verdict, ranks, stacks, in that order."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ncdiag import redact
from ncdiag.hang.verdict import Fold, RankVerdict, Verdict
from ncdiag.model import SCHEMA, Cause
from ncdiag.report.causes import QUIET
from ncdiag.report.console import make_console, print_item, print_row
from ncdiag.report.plain import one_line, plain
from ncdiag.report.printed import print_printed
from ncdiag.report.run import Run
from ncdiag.report.wrapped import wrapped

KINDS = {
    "hang": "bold red",
    "failed": "bold red",
    "progressing": "bold green",
    "healthy": "bold green",
    "unknown": "bold magenta",
}
STATES = {
    "stuck": "bold red",
    "stopped": "bold red",
    "dead": "bold red",
    "missing": "bold red",
    "progressing": "green",
    "waiting": "dim",
    "unknown": "magenta",
}
EVIDENCE = 5
FRAMES = 6
NATIVE = 3
"""Native frames shown above those of Python."""
_PYTHON = re.compile(r"\.py:\d+\)|\((?:<string>|<frozen |<stdin>)")
_INTERPRETER = re.compile(r"/lib-dynload/|libpython3|\(python3?[\d.]*[:)]|_cpython|^_?Py[A-Z_]|^sock_|^time_")
_WRAPPERS = re.compile(r"c10d_logger\.py:|contextlib\.py:|pybind11::|^\?|^_start |^__libc_start|libpython[\d.]+\.so")
"""Frames that say nothing: decorators, binding layers, the interpreter."""
NOTES = 8
EXCEPTIONS = 2
"""Exceptions of different processes that are shown."""
NAME = 80
"""Characters of a frame's name in the text."""


def verdict_as_text(verdict: Verdict, notes: Sequence[str], *, color: str | None, verbose: bool = False) -> str:
    """Verdict first, then rank × stage × since × waits for, then folded stacks, then what could not be read."""
    console, buffer = make_console(color)
    for text in verdict.asked:
        console.print(Text(plain(text) + "\n", "bold yellow"))
    _print_verdict(console, verdict, verbose)
    if verdict.ranks:
        console.print()
        console.print(_table(verdict.ranks))
    print_printed(console, verdict.printed if verbose else verdict.printed[:EXCEPTIONS])
    _print_stacks(console, verdict.folds, None if verbose else FRAMES)
    _print_list(console, "not read", notes, None if verbose else NOTES)
    _print_list(console, "next", verdict.next, None)
    return buffer.text()


def _print_verdict(console: Console, verdict: Verdict, verbose: bool) -> None:
    doubt = verdict.kind == "hang" and verdict.causes[:1] and verdict.causes[0].confidence == "possible"
    word = "HANG?" if doubt else one_line(verdict.kind).upper()
    style = KINDS["unknown"] if doubt else KINDS.get(verdict.kind, "bold")
    print_row(console, Text(word, style), Text(plain(verdict.summary), "bold"), 12)
    for index, cause in enumerate(verdict.causes if verbose else verdict.causes[:3]):
        console.print(Padding(_cause(cause, verdict.summary, full=index == 0 or verbose), (0, 0, 0, 12)))


def _cause(cause: Cause, said: str, *, full: bool) -> Text:
    quiet = cause.cause in QUIET
    lines = Text(one_line(cause.cause) if quiet else f"{plain(cause.confidence)} · {one_line(cause.cause)}", "cyan")
    if cause.summary and cause.summary != said:
        lines.append("\n" + plain(cause.summary), "default")
    if not full:
        return lines
    if cause.remedy:
        lines.append("\n→ ", "bold")
        lines.append(plain(cause.remedy), "default")
        lines.append("" if quiet else f"\n  ncdiag playbook run {one_line(cause.playbook)}", "dim")
    for evidence in cause.evidence[:EVIDENCE]:
        where = one_line(evidence.source) + (f":{evidence.line}" if evidence.line else "")
        lines.append(f"\n· {where}: {plain(evidence.text)}" if where else f"\n· {plain(evidence.text)}", "dim")
    if len(cause.evidence) > EVIDENCE:
        lines.append(f"\n· and {len(cause.evidence) - EVIDENCE} more in --format json", "dim")
    return lines


def _table(rows: Sequence[RankVerdict]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    several = len({row.node for row in rows}) > 1
    for name in ("", "rank", *(["node"] if several else []), "pid", "stage", "state", "since", "waits for"):
        table.add_column(name, no_wrap=name not in ("waits for", "stage"), overflow="fold")
    for row in rows:
        who = str(row.rank) if row.rank is not None else one_line(row.role)
        cells = [
            Text("►", "bold red") if row.culprit else "",
            who,
            *([one_line(row.node or "–")] if several else []),
            str(row.pid or "–"),
            one_line(row.stage),
            Text(one_line(row.state), STATES.get(row.state, "")),
            _since(row),
            _waits(row),
        ]
        table.add_row(*cells)
    return table


def _since(row: RankVerdict) -> str:
    if row.since_s is None:
        return "–"
    seconds = round(row.since_s)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h {seconds % 3600 // 60} min"


def _waits(row: RankVerdict) -> Text:
    text = Text(plain(row.waits_for or row.rate or ""))
    if row.waits_for and row.rate:
        text.append(f" ({plain(row.rate)})", "dim")
    if row.left_s is not None:
        text.append(f", about {round(row.left_s)} s left", "green")
    if row.note:
        text.append((" · " if text.plain else "") + plain(row.note), "dim")
    return text


def _print_stacks(console: Console, folds: Sequence[Fold], limit: int | None) -> None:
    for fold in sorted(folds, key=lambda fold: not fold.odd):
        head = Text("\n")
        head.append("odd one out: " if fold.odd else "", "bold red")
        head.append(", ".join(one_line(name) for name in fold.ranks), "bold")
        console.print(head)
        frames = fold.frames if limit is None else _telling(fold.frames, limit)
        for frame in frames:
            console.print(Text(wrapped("    " + _short(one_line(frame)), " " * 8)), soft_wrap=True)
        if len(frames) < len(fold.frames):
            console.print(Text(f"    … {len(fold.frames) - len(frames)} more (-v shows all)", "dim"))


def _telling(frames: Sequence[str], limit: int) -> list[str]:
    """The frames that say most: the innermost native ones, then Python's, without wrappers; the interpreter's own modules say nothing."""
    plainer = [frame for frame in frames if not _WRAPPERS.search(frame)]
    native = [frame for frame in plainer if not _PYTHON.search(frame)]
    python = [frame for frame in plainer if _PYTHON.search(frame)]
    outside = [frame for frame in native if not _INTERPRETER.search(frame)] or native
    kept = set(outside[: NATIVE if python else limit])
    kept.update(python[: limit - min(len(outside), NATIVE)])
    return [frame for frame in plainer if frame in kept]


def _short(frame: str) -> str:
    """Without the folders above site-packages, and without the template arguments of C++ names."""
    name, _, place = frame.rpartition(" (")
    place = re.sub(r"^.*/(?:site-packages|dist-packages|lib/python3\.\d+)/|^.*/(?=[^/]+\.so)", "", place).replace(
        ":0)", ")"
    )
    while (
        "<" in name
        and ">" in name
        and (bare := re.sub(r"<(?!module|listcomp|lambda|locals|genexpr)[^<>]*>", "", name)) != name
    ):
        name = bare
    return f"{name if len(name) <= NAME else name[:NAME] + '…'} ({place}" if name else frame


def _print_list(console: Console, title: str, lines: Sequence[str], limit: int | None) -> None:
    if not lines:
        return
    console.print(Text(f"\n{title}", "bold"))
    shown = lines if limit is None else lines[:limit]
    for line in shown:
        print_item(console, "-", plain(line))
    if len(shown) < len(lines):
        console.print(Text(f"  - and {len(lines) - len(shown)} more (-v shows all)", "dim"))


def verdict_as_json(command: str, verdict: Verdict, notes: Sequence[str], code: int, run: Run) -> str:
    """The contract for automation, plus `verdict`, `summary`, `waits`, `folds` and `not_read`."""
    data: dict[str, Any] = verdict.as_dict()
    return json.dumps(
        redact.data(
            {
                "schema": SCHEMA,
                "command": command,
                "run": run.as_dict(),
                "verdict": data.pop("kind"),
                "summary": data.pop("summary"),
                **data,
                "not_read": list(notes),
                "exit": int(code),
            }
        ),
        indent=1,
    )
