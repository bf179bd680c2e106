"""What ranks printed before they stopped or failed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ncdiag.hang.verdict import Printed
from ncdiag.nodeset import counted
from ncdiag.report.plain import one_line, plain


def title(told: Printed) -> str:
    """`rank 1 (gpu02, pid 4711) in worker.log, its last lines`."""
    later = f"{counted(told.after, 'line')} before its end" if told.after else "its last lines"
    return f"{plain(told.name)} in {plain(told.source)}, {later}"


def print_printed(console: Console, printed: Sequence[Printed]) -> None:
    """On the terminal."""
    for told in printed:
        console.print(Text("\nprinted by " + title(told), "bold"))
        for line in told.lines:
            console.print(Text("    " + one_line(line)), soft_wrap=True)
