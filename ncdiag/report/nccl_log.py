"""What an NCCL log says, on the terminal: readable with two ranks and with two thousand. Alike things are told once, names and ranks folded."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ncdiag.nccl.events import ends_a_rank
from ncdiag.nccl.log_facts import Communicator, Event, NcclFacts, Process, Rank
from ncdiag.nodeset import counted, fold, ranks
from ncdiag.report.console import make_console, plain

ROWS = 24  # of one table; what is left out is counted
DONE = ("complete", "destroyed")
_DETAILS = ("n_nodes", "local_ranks", "coll_channels", "nvls", "ring_gdr")


def log_as_text(facts: NcclFacts, *, color: str | None, every_rank: bool = False) -> str:
    """Head, communicators, who waits for whom, settings, what differs, timings, errors; with `every_rank` one line a rank."""
    console, buffer = make_console(color)
    _head(console, facts)
    if facts.communicators:
        _communicators(console, facts)
        _waiting(console, facts)
    else:
        _processes(console, facts.processes)
    main = _main(facts)
    if main is not None:
        _same_and_different(console, main)
        _timings(console, main)
    _events(console, facts)
    if every_rank:
        _every_rank(console, facts)
    for note in facts.notes:
        console.print(Text(f"note: {plain(note)}", "dim"))
    return buffer.text()


def _head(console: Console, facts: NcclFacts) -> None:
    hosts = [process.host for process in facts.processes if process.host]
    version = " and ".join(facts.versions) or "of unknown version"
    lines = sum(source.lines for source in facts.sources)
    parts = [f"NCCL {version}", _count(len(facts.processes), "process") + (f" on {fold(hosts)}" if hosts else "")]
    parts += [
        _count(len(facts.communicators), "communicator"),
        f"{_count(lines, 'line')} of {_count(len(facts.sources), 'file')}",
    ]
    console.print(Text(plain("  ·  ".join(parts)), "bold" if len(facts.versions) < 2 else "bold yellow"))


def _count(number: int, what: str) -> str:
    plural = what + ("es" if what.endswith("s") else "s")
    return f"{number} {what if number == 1 else plural}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _print(console: Console, title: str, table: Table) -> None:
    """The table under its title; nothing when it is empty."""
    if table.row_count:
        console.print()
        console.print(Text(title, "bold"))
        console.print(table)


def _names(facts: NcclFacts) -> dict[str, str]:
    """Sources by their last path component where that tells them apart."""
    last = {source.name: os.path.basename(source.name) or source.name for source in facts.sources}
    return last if len(set(last.values())) == len(last) else {name: name for name in last}


def _main(facts: NcclFacts) -> Communicator | None:
    """The communicator that speaks for the job: the one of most ranks here."""
    return max(facts.communicators, key=lambda communicator: len(communicator.ranks), default=None)


def _communicators(console: Console, facts: NcclFacts) -> None:
    table = _table("#", "ranks", "nodes", "stage", "between nodes", "in all", "rings")
    groups = _alike(facts.communicators)
    for group in groups[:ROWS]:
        table.add_row(*_row(group))
    _print(console, "Communicators", table)
    if len(groups) > ROWS:
        console.print(Text(f"… and {counted(len(groups) - ROWS, 'more kind')} of communicator", "dim"))


def _alike(communicators: Sequence[Communicator]) -> list[list[Communicator]]:
    groups: dict[tuple[object, ...], list[Communicator]] = {}
    for one in communicators:
        names = tuple(sorted(one.transports)), tuple(sorted(one.between_nodes))
        key = (
            one.nranks,
            len(one.ranks),
            tuple(one.stages.items()),
            names,
            tuple(one.culprits),
            one.call,
            len(one.rings),
        )
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def _row(group: list[Communicator]) -> list[Text]:
    first = group[0]
    nodes = fold(rank.node for one in group for rank in one.ranks if rank.node)
    number = str(first.index) + (f" and {len(group) - 1} alike" if len(group) > 1 else "")
    here = f"{len(first.ranks)} of {first.nranks}" if len(first.ranks) != first.nranks else str(first.nranks)
    stage = ", ".join(
        f"{name} {'' if len(first.stages) == 1 and not first.missing else who}".strip()
        for name, who in first.stages.items()
    )
    style = "green" if set(first.stages) <= set(DONE) else "yellow"
    rings = " | ".join(f"{_short(ring.order, 30)} ×{len(ring.channels)}" for ring in first.rings[:2]) + (
        " …" if len(first.rings) > 2 else ""
    )
    slow = "red" if any(name.startswith("NET/Socket") for name in first.between_nodes) else ""
    return [
        Text(number), Text(here, "" if here == str(first.nranks) else "yellow"), Text(plain(nodes)), Text(stage, style),
        Text(plain(_counted(first.between_nodes)), slow), Text(plain(_counted(first.transports))), Text(rings),
    ]  # fmt: skip


def _counted(names: dict[str, int]) -> str:
    return ", ".join(f"{name} ×{count}" for name, count in sorted(names.items(), key=lambda item: -item[1])[:6])


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _waiting(console: Console, facts: NcclFacts) -> None:
    shown = [one for one in facts.communicators if one.culprits or not set(one.stages) <= set(DONE)]
    names = _names(facts)
    for one in shown[:ROWS]:
        named = {rank.rank: rank for rank in one.ranks}
        console.print(Text(f"communicator {one.index}: {plain(one.reason)}", "bold red" if one.culprits else "yellow"))
        for number in one.culprits[:4]:
            if number in named:
                last = facts.processes[named[number].process].last
                said = f", last line {names[last.source]}:{last.line}: {_short(last.text, 160)}" if last else ""
                console.print(Text(plain(f"  rank {number} on {named[number].node}{said}")))
    if len(shown) > ROWS:
        console.print(Text(f"… and {counted(len(shown) - ROWS, 'more communicator')} not complete", "dim"))


def _processes(console: Console, processes: Sequence[Process]) -> None:
    """Without a communicator, all there is are processes and how far they came."""
    stages: dict[str, list[str]] = {}
    for process in processes:
        stages.setdefault(process.stage, []).append(process.host or "?")
    for stage, hosts in stages.items():
        console.print(Text(plain(f"stage {stage}: {_count(len(hosts), 'process')} on {fold(hosts)}")))


def _same_and_different(console: Console, main: Communicator) -> None:
    same = {name: next(iter(values)) for name, values in main.spread.items() if len(values) == 1}
    table = _table()
    for name, value in same.items():
        if name not in _DETAILS or name == "coll_channels":
            table.add_row(Text(plain(name), "dim"), Text(plain(value)))
    _print(console, f"Same on all ranks of communicator {main.index} that say it", table)
    different = {
        name: values for name, values in main.spread.items() if len(values) > 1 and name != "bootstrap_network"
    }
    if not different:
        return
    table = _table()
    for name, values in list(different.items())[:ROWS]:
        for value, who in list(values.items())[:6]:
            table.add_row(Text(plain(name), "yellow"), Text(plain(_short(value, 80))), Text(f"rank {_short(who, 60)}"))
        if len(values) > 6:
            table.add_row("", Text(f"… and {counted(len(values) - 6, 'other value')}", "dim"), "")
    _print(console, f"Different between ranks of communicator {main.index}", table)


def _timings(console: Console, main: Communicator) -> None:
    """Where the time went, over the ranks: least, middle, most, and who took most. A rank that waits shows long bootstrap; the late one short."""
    table = _table("phase", "least", "middle", "most", "rank")
    for name in ("total", "kernels", "alloc", "bootstrap", "allgathers", "topo", "graphs", "connections"):
        found = [(rank.timings_s[name], rank.rank) for rank in main.ranks if name in rank.timings_s]
        if found and (max(found)[0] >= 0.01 or name == "total"):
            values = [seconds for seconds, _ in found]
            most, rank = max(found)
            who = str(rank) if most - min(values) >= 0.1 else ""
            table.add_row(name, f"{min(values):.2f}", f"{statistics.median(values):.2f}", f"{most:.2f}", who)
    _print(console, "Seconds of initialisation", table)


def _events(console: Console, facts: NcclFacts) -> None:
    groups: dict[tuple[object, ...], list[Event]] = {}
    for event in facts.events:
        groups.setdefault(
            (event.kind, event.fields.get("status"), event.fields.get("reason"), event.fields.get("provider")), []
        ).append(event)
    if not groups:
        return
    table = _table("what", "times", "who", "first")
    names = _names(facts)
    ordered = sorted(
        groups.values(), key=lambda group: (not any(map(ends_a_rank, group)), all(event.secondary for event in group))
    )
    for group in ordered[:ROWS]:
        first = group[0]
        style = "red" if any(map(ends_a_rank, group)) else "dim" if first.secondary else "yellow"
        times = str(sum(event.count for event in group))
        what = first.kind + (f" {first.fields['status']}" if "status" in first.fields else "")
        table.add_row(
            Text(what, style),
            times,
            Text(plain(_who(group))),
            Text(plain(f"{names[first.at.source]}:{first.at.line}: {_short(first.message, 150)}")),
        )
    _print(console, "Errors and remarkable lines", table)
    left = len(ordered) - ROWS
    if left > 0 or facts.events_left_out:
        console.print(
            Text(
                f"… and {counted(max(left, 0), 'more kind')} of line, {counted(facts.events_left_out, 'line')} beyond the limit kept",
                "dim",
            )
        )


def _who(group: Iterable[Event]) -> str:
    events = list(group)
    hosts = fold(event.host for event in events if event.host)
    numbers = [event.rank for event in events if event.rank is not None]
    if numbers and len({event.communicator for event in events}) == 1:
        return f"rank {ranks(numbers)}" + (f" on {hosts}" if hosts else "")
    return hosts or "unknown"


def _every_rank(console: Console, facts: NcclFacts) -> None:
    for one in facts.communicators:
        table = _table("rank", "node", "pid", "dev", "stage", "network", "interface", "links")
        for rank in one.ranks:
            process = facts.processes[rank.process]
            pid, dev = ("" if value is None else str(value) for value in (process.pid, rank.cuda_dev))
            interface = (
                f"{process.bootstrap_interface} {process.bootstrap_address}" if process.bootstrap_interface else ""
            )
            table.add_row(
                str(rank.rank),
                plain(rank.node or ""),
                pid,
                dev,
                rank.stage,
                plain(process.network or ""),
                plain(interface),
                plain(_links(rank)),
            )
        _print(console, f"Communicator {one.index}", table)


def _links(rank: Rank) -> str:
    arrows = {"send": "→", "receive": "←"}
    return ", ".join(
        f"{arrows.get(link.direction, '')}{link.peer} {link.transport}{'/GDRDMA' if link.gdr else ''} ×{link.channels}"
        for link in rank.links[:12]
    )
