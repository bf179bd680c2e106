"""A start under watch as people see it: a live table on a terminal, plain lines elsewhere; the summary; JSON for automation."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ncdiag import redact, stages
from ncdiag.hang import activity
from ncdiag.hang.remaining import remaining
from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Verdict
from ncdiag.model import SCHEMA, Cause
from ncdiag.nodeset import counted
from ncdiag.nodeset import ranks as fold_ranks
from ncdiag.report.causes import causes_as_text
from ncdiag.report.console import make_console, plain
from ncdiag.report.hang import STATES, verdict_as_text
from ncdiag.report.run import now

ELSEWHERE = (
    "if it has started the engine elsewhere (a container, a scheduler, a Ray job), watch it there: ncdiag bringup --attach PID on that machine, "
    "--ray for a Ray cluster, --nodes ssh:NODESET for other nodes"
)
_ENGINE = ("api-server", "engine-core", "headless", "worker", "ray-worker", "coordinator")
PLAIN_EVERY_S = 15.0
"""How often a plain line says that it still goes on, where no stage changes."""


class Rows(Protocol):
    """The times of the stages, by (node, pid)."""

    def since(self, state_key: tuple[str, int]) -> float | None: ...


class _Raw:
    """Bytes of the command as they are, above the live table."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class Screen:
    """Where a start stands, on stderr. The command's own output goes to stdout and stderr untouched."""

    def __init__(self, *, color: str, quiet: bool) -> None:
        self.live = sys.stderr.isatty() and not quiet
        self._quiet, self._color = quiet, color
        self._console = Console(stderr=True, highlight=False, no_color=color == "never" or None)
        self._live = (
            Live(console=self._console, refresh_per_second=4, transient=True, auto_refresh=True) if self.live else None
        )
        self.both = self.live and sys.stdout.isatty()
        self._open: dict[bool, str] = {False: "", True: ""}
        self._last, self._said_at = "", time.monotonic()
        if self._live is not None:
            self._live.start()

    def write(self, stderr: bool, data: bytes) -> None:
        """Passes bytes of the command on."""
        if self._live is not None and (self.both or stderr):
            *lines, rest = (self._open[stderr] + data.decode("utf-8", "replace")).split("\n")
            self._open[stderr] = rest
            if lines:
                self._console.print(_Raw("\n".join(lines)))
            return
        target = sys.stderr if stderr else sys.stdout
        try:
            target.buffer.write(data)
            target.buffer.flush()
        except (OSError, ValueError):
            pass

    def say(self, text: str) -> None:
        """Something for people, on stderr."""
        if self._live is not None:
            self._console.print(Text.from_ansi(text.rstrip("\n")))
        else:
            sys.stderr.write(text if text.endswith("\n") else text + "\n")
            sys.stderr.flush()

    def show(self, at_s: float, views: Sequence[View], since: Rows, quiet_s: float, errors: Sequence[str]) -> None:
        """The state of all processes at one time."""
        if self._live is not None:
            self._live.update(_table(at_s, views, since, quiet_s, errors))
            return
        line = _line(views, errors)
        now = time.monotonic()
        if not self._quiet and (line != self._last or now - self._said_at > PLAIN_EVERY_S):
            rates = [f"{_who(view)} {rate}" for view in views if (rate := _moves(view))][:3]
            more = (
                f"; nothing moves for {quiet_s:.0f} s"
                if quiet_s > PLAIN_EVERY_S
                else ("; " + ", ".join(rates) if rates and line == self._last else "")
            )
            self.say(f"ncdiag {at_s:6.1f} s  {line}{more}")
            self._last, self._said_at = line, now

    def close(self) -> None:
        """Takes the live table away."""
        if self._live is not None:
            self._live.stop()
            for stderr, rest in self._open.items():
                if rest:
                    (sys.stderr if stderr else sys.stdout).write(rest)
            self._live = None
            self.both = False


def _who(view: View) -> str:
    return f"rank {view.rank}" if view.rank is not None else view.state.role


_HALTS = {"dead": "ended", "stopped": "stopped"}
"""Words for who has no stage any more; a job that is done has ended as well."""


def _line(views: Sequence[View], errors: Sequence[str]) -> str:
    """`ranks 0-1 rendezvous, engine-core wait-workers`; processes of one kind and stage together."""
    if not views:
        return "; ".join(["no process of the engine yet", *map(plain, errors)])
    groups: dict[tuple[bool, str, str], list[View]] = {}
    for view in views:
        stage = _HALTS.get(view.verdict, view.stage)
        groups.setdefault((view.rank is None, "" if view.rank is not None else view.state.role, stage), []).append(view)
    parts = []
    for (manager, role, stage), members in sorted(groups.items(), key=lambda item: item[0]):
        numbers = sorted(view.rank for view in members if view.rank is not None)
        name = role if manager else f"rank{'s' if len(numbers) > 1 else ''} {fold_ranks(numbers)}"
        parts.append(f"{name}{f' ×{len(members)}' if manager and len(members) > 1 else ''} {stage}")
    return "; ".join([", ".join(parts), *map(plain, errors)])


def _moves(view: View) -> str:
    left = remaining(view.state.log_tail)
    rate = activity.rate(view.state.progress) if view.verdict == "progressing" else ""
    return f"{rate}, {left[1]}, about {left[0]:.0f} s left" if left and rate else left[1] if left else rate


def _table(at_s: float, views: Sequence[View], since: Rows, quiet_s: float, errors: Sequence[str]) -> Table:
    head = f"{at_s:.0f} s" + (f" · nothing moves for {quiet_s:.0f} s" if quiet_s > 5 else "")
    table = Table(title=head, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("rank", "node", "pid", "stage", "in it", "state", "GPU memory", "moves"):
        table.add_column(name, no_wrap=True)
    slowest = min(
        (stages.order(view.stage) for view in views if view.rank is not None and view.stage != "unknown"), default=None
    )
    for view in views:
        start = since.since((view.state.node, view.state.pid))
        held = view.state.gpu.get("memory_bytes")
        last = (
            view.rank is not None
            and slowest is not None
            and stages.order(view.stage) == slowest
            and len({v.stage for v in views if v.rank is not None}) > 1
        )
        table.add_row(
            Text(_who(view).removeprefix("rank "), "bold" if last else ""),
            plain(view.state.node),
            str(view.state.pid),
            Text(view.stage + (" ◂ slowest" if last else ""), "bold" if last else ""),
            f"{at_s - start:.0f} s" if start is not None else "–",
            Text(_HALTS.get(view.verdict, view.verdict), STATES.get(view.verdict, "")),
            f"{held / 2**30:.1f} GiB" if held else "–",
            plain(_moves(view)),
        )
    for error in errors:
        table.add_row("", Text(plain(error), "magenta"))
    return table


def stall_as_text(
    at_s: float, quiet_s: float, verdict: Verdict, notes: Sequence[str], halted: Sequence[View], *, color: str | None
) -> str:
    """The verdict while the engine keeps waiting. `halted`: what has just ended or been stopped, before the rest stands still."""
    head = _halts(halted) or f"nothing has moved for {quiet_s:.0f} s"
    return f"\nncdiag {at_s:6.1f} s  {head}\n" + verdict_as_text(verdict, notes, color=color) + "\n"


def _halts(views: Sequence[View]) -> str:
    """`ranks 1-3 have ended; engine-core is stopped`; empty where nothing did."""
    said = []
    for dead, one, several in ((True, "has ended", "have ended"), (False, "is stopped", "are stopped")):
        some = [view for view in views if (view.verdict == "dead") is dead]
        numbers = sorted({view.rank for view in some if view.rank is not None})
        names = [f"rank{'s' if len(numbers) > 1 else ''} {fold_ranks(numbers)}"] if numbers else []
        names += [plain(view.name) for view in some if view.rank is None]
        if names:
            said.append(f"{', '.join(names)} {several if len(some) > 1 else one}")
    return "; ".join(said)


def result_as_text(result: Mapping[str, Any], causes: Sequence[Cause], *, color: str | None) -> str:
    """How it ended: ready with its numbers, or the first error."""
    console, buffer = make_console(color)
    outcome, took = result["outcome"], result["took_s"]
    good = outcome in ("ready", "finished")
    head = Text(f"{outcome.upper():<12}", "bold green" if good else "bold red")
    head.append(_headline(result), "bold")
    console.print(head)
    if result.get("exit_status") not in (None, 0):
        console.print(Text(f"{'':12}the command ended with status {result['exit_status']} after {took:.1f} s"))
    summary = result.get("summary") or {}
    for name, text in (
        ("KV cache", (summary.get("kv_cache") or {}).get("sentence")),
        ("network", summary.get("network")),
    ):
        if text:
            console.print(Text(f"{'':12}{name}: {plain(text)}"))
    if good or not causes:
        _print_times(console, result["timeline"]["rows"])
    text = buffer.text()
    shown = list(causes) or [
        Cause(
            **{
                key: value
                for key, value in cause.items()
                if key in Cause.__dataclass_fields__ and key not in ("evidence", "secondary", "also_seen")
            }
        )
        for cause in summary.get("warnings", ())
    ]
    return text + (("\n" + causes_as_text(shown, more="--format json", color=color)) if shown else "")


def _headline(result: Mapping[str, Any]) -> str:
    check, took = result.get("check") or {}, result["took_s"]
    if result["outcome"] == "ready":
        answer = (
            f"; a completion of {counted(check['completion_tokens'], 'token') if check['completion_tokens'] else '? tokens'} took {check['latency_s']:.2f} s ({plain(check['model'])})"
            if check.get("latency_s") is not None
            else ""
        )
        return f"up after {took:.1f} s{answer}"
    words = {
        "finished": f"the command ended well after {took:.1f} s",
        "failed": f"it did not come up ({took:.1f} s)",
        "stalled": f"stopped: it stood still ({took:.1f} s)",
        "ended": f"the command ended with status 0 after {took:.1f} s, {_what_was_missing(result)}"
        if result.get("exit_status") is not None
        else f"it has ended after {took:.1f} s; whether well, only its parent knows, and no log says that it failed",
        "timeout": f"not up within {result['timeout_s'] or took:g} s; given up after {took:.1f} s",
        "interrupted": f"interrupted after {took:.1f} s",
    }
    text = words[result["outcome"]]
    return text + (f"; {plain(check['error'])}" if check.get("error") else "")


def _what_was_missing(result: Mapping[str, Any]) -> str:
    """Of a command that ended well without having come up."""
    seen = any(row["rank"] is not None or row["role"] in _ENGINE for row in result["timeline"]["rows"])
    return "before it was up" if seen else f"and no engine was seen; {ELSEWHERE}"


def _print_times(console: Console, rows: Iterable[Mapping[str, Any]]) -> None:
    """Seconds in each stage, one row a process."""
    rows = list(rows)
    if not rows:
        return
    names = [
        stage.name
        for stage in stages.STAGES
        if any(span["stage"] == stage.name for row in rows for span in row["spans"])
    ]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("seconds in")
    for row in rows:
        table.add_column(
            plain(f"rank {row['rank']}" if row["rank"] is not None else row["role"])
            + (f"\n{plain(row['node'])}" if len({r["node"] for r in rows}) > 1 else ""),
            justify="right",
        )
    for name in names:
        cells = [sum(span["to_s"] - span["from_s"] for span in row["spans"] if span["stage"] == name) for row in rows]
        table.add_row(name, *(f"{cell:.1f}" if cell else "" for cell in cells))
    console.print(table)


def as_json(result: Mapping[str, Any], causes: Sequence[Cause], verdict: Verdict | None, code: int) -> str:
    """The contract for automation: `causes`, `ranks`, `communicators`, `next`, and `outcome`, `took_s`, `check`, `summary`, `stalls`, `timeline`."""
    shown: dict[str, Any] = verdict.as_dict() if verdict is not None else {}
    return json.dumps(
        redact.data(
            {
                "schema": SCHEMA,
                "command": "bringup",
                "run": now().as_dict(),
                **result,
                "causes": [cause.as_dict() for cause in causes],
                "ranks": shown.get("ranks", []),
                "communicators": shown.get("communicators", []),
                "next": shown.get("next", []),
                "exit": code,
            }
        ),
        indent=1,
    )
