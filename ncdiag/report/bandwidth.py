"""A bandwidth run for people. The JSON of it is made by the command itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from ncdiag.model import Finding, Status
from ncdiag.nodeset import counted, fold
from ncdiag.report.console import STYLES, make_console, plain
from ncdiag.report.measured import said
from ncdiag.report.plainly import brief
from ncdiag.report.printed import print_printed
from ncdiag.report.wrapped import wrapped

HASH = "#   "
"""Before what goes on of a line that begins with `#`."""


def render(
    report: Mapping[str, Any],
    findings: Sequence[Finding],
    tables: Sequence[tuple[str, str, str]],
    *,
    color: str | None,
    detail: bool,
) -> str:
    """`report`: the JSON form; `tables`: (operation, table in nccl-tests' layout, table of spread)."""
    console, buffer = make_console(color)
    versions = ", ".join(f"{name} {'/'.join(values)}" for name, values in report["versions"].items() if values)
    names = {rank["name"] for rank in report["ranks"]}
    ranks = report["ranks"]
    on = f" on {fold(list(dict.fromkeys(rank['node'] for rank in ranks)))}" if ranks else ""
    parts = [f"# {counted(len(ranks), 'rank')}{on}", report["backend"], *sorted(names)]
    head = ", ".join(parts) + (f"; {versions}" if versions else "")
    console.print(Text(wrapped(plain(head), HASH), "dim"), soft_wrap=True)
    for op, table, spread in tables:
        console.print(Text(f"# {op}", "bold"))
        console.print(Text(plain_table(table)), soft_wrap=True)
        if detail:
            console.print(Text(plain_table(spread), "dim"), soft_wrap=True)
    _expectation(console, report["expectation"])
    for change in report["changes"]:
        style = "yellow" if change["significant"] else "dim"
        ratio = change["now_gbytes_s"] / change["before_gbytes_s"] - 1
        line = f"# {change['op']} {change['size_bytes']:>12d}: {change['before_gbytes_s']:.4g} -> {change['now_gbytes_s']:.4g} GB/s ({ratio:+.1%})"
        console.print(Text(wrapped(line, HASH), style), soft_wrap=True)
    for finding in findings:
        if finding.status is not Status.SKIP:
            _finding(console, finding)
    isolation = report["isolation"]
    if isolation:
        usual = isolation["usual_busbw_gbytes_s"]
        told = "" if usual is None else f", usual {usual:.4g} GB/s, slow below {isolation['slow_below']:.0%} of it"
        console.print(
            Text(
                wrapped(
                    f"# {counted(len(isolation['tests']), 'pair')} in {counted(isolation['rounds'], 'round')} (at most {isolation['most_rounds']}){told}",
                    HASH,
                ),
                "dim",
            ),
            soft_wrap=True,
        )
        if (
            not isolation["verdicts"]
            and not isolation["unfinished"]
            and all(test["busbw_gbytes_s"] is not None for test in isolation["tests"])
        ):
            console.print(
                Text("# no pair is slower than the others: nobody in particular is to blame", "dim"), soft_wrap=True
            )
    _engine(console, report["engine"])
    print_printed(console, said(report))
    return buffer.text()


def plain_table(text: str) -> str:
    """Sentences below a table are broken where the terminal ends."""
    return "\n".join(wrapped(plain(line), HASH) for line in text.rstrip("\n").split("\n"))


def _expectation(console: Any, expectation: Mapping[str, Any]) -> None:
    if expectation["chosen"]:
        console.print(Text(wrapped(plain(f"# NCCL chose {expectation['chosen']}"), HASH), "dim"), soft_wrap=True)
    for term in expectation["terms"]:
        figure = f"{term['value']:.4g} {term['unit']}".strip()
        line = plain(f"#   {term['what']}: {figure} ({term['source']})")
        console.print(Text(wrapped(line, HASH + "  "), "dim"), soft_wrap=True)


def _finding(console: Any, finding: Finding) -> None:
    line = Text(wrapped(f"{finding.status.value:<8}{plain(finding.summary)}", " " * 8))
    line.stylize(STYLES[finding.status], 0, 8)
    console.print(line, soft_wrap=True)
    if finding.remedy:
        console.print(Padding(Text("→ " + plain(finding.remedy), "dim"), (0, 0, 0, 8)))


def _engine(console: Any, forwards: Sequence[Mapping[str, Any]]) -> None:
    for forward in forwards:
        share = "" if forward["share"] is None else f", {forward['share']:.0%} of the {forward['what']}"
        parts = []
        if forward["all_reduces"]:
            parts.append(f"{counted(forward['all_reduces'], 'all-reduce')} of {size(forward['all_reduce_bytes'])}")
        if forward["sends"]:
            parts.append(f"{counted(forward['sends'], 'send')} of {size(forward['send_bytes'])}")
        text = f"{forward['layout']:<12} {forward['what']:<12} {' and '.join(parts) or 'nothing'} for {counted(forward['tokens'], 'token')}, {brief(forward['communication_s'])}{share}"
        console.print(Text(wrapped(plain(text), " " * 13)), soft_wrap=True)


def size(count: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.3g} {unit}"
        count /= 1024
    return ""
