"""What a drill shows: the list of exercises, the call, and the truth."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ncdiag.playbook.loader import load, names
from ncdiag.report.causes import QUIET
from ncdiag.report.console import make_console
from ncdiag.report.plain import one_line, plain
from ncdiag.report.wrapped import wrapped

from . import exercise, needs, shell
from .faults import Fault
from .faults.base import HEALTHY, SLOW
from .session import Scene

_MEANS = {HEALTHY: "nothing is broken", SLOW: "nothing is broken; it only takes long"}


def causes() -> dict[str, str]:
    """Every answer that there is, and what it means."""
    return {**{name: load(name).title for name in names()}, **_MEANS}


def titles(slugs: Iterable[str]) -> str:
    """One answer a line."""
    all_ = causes()
    return "".join(wrapped(f"  {slug:32} {all_.get(slug, '')}", " " * 35) + "\n" for slug in slugs)


def exercises(faults: Mapping[int, Fault], lacking: Mapping[str, Sequence[str]], *, spoil: bool, color: str) -> str:
    """The exercises by shape, easy ones first; what is broken only with `spoil`."""
    console, buffer = make_console(color)
    common = [reason for reason in next(iter(lacking.values()), ()) if all(reason in all_ for all_ in lacking.values())]
    for reason in common:
        console.print(
            Text(wrapped(f"nothing can run here: {plain(reason)}", "  "), "yellow"), soft_wrap=True, markup=False
        )
    for shape, (title, _) in needs.SHAPES.items():
        chosen = [(number, fault) for number, fault in faults.items() if fault.shape == shape]
        if not chosen:
            continue
        console.print(Text(shape, "bold").append(f"  {title}", "not bold"), soft_wrap=True, markup=False)
        for reason in [reason for reason in lacking.get(shape, ()) if reason not in common]:
            console.print(
                Text(wrapped(f"  cannot run here: {plain(reason)}", "    "), "yellow"), soft_wrap=True, markup=False
            )
        if spoil:
            for number, fault in chosen:
                console.print(
                    wrapped(f"  {number}  {fault.name:28} {' or '.join(fault.causes)}: {fault.what}", " " * 8),
                    soft_wrap=True,
                    markup=False,
                )
        else:
            for level, words in exercise.LEVELS.items():
                alike = [_number(number, fault) for number, fault in chosen if exercise.level(fault) == level]
                if alike:
                    console.print(f"  {'*' * level:4} {words}", soft_wrap=True, markup=False)
                    console.print(Padding(Text(" ".join(alike)), (0, 0, 0, 7)))
        console.print()
    console.print(
        wrapped(f"One of them: {shell.program()} drill NUMBER")
        + "\n"
        + wrapped(f"Any that keeps a job from coming up: {shell.program()} drill"),
        soft_wrap=True,
        markup=False,
    )
    return buffer.text()


def _number(number: int, fault: Fault) -> str:
    return f"{number}(not here)" if needs.lacks(fault) else str(number)


def call(scene: Scene, minutes: float | None) -> str:
    """What somebody on call gets: what is said to be wrong, where things are, and ways in."""
    made = scene.made
    hosts = list(made.hosts.hosts)
    console, buffer = make_console(None)
    table = Table(box=None, pad_edge=False, header_style="", padding=(0, 2, 0, 0))
    for name in ("host", "address", "engine", "pid", "its log"):
        table.add_column(name, no_wrap=True)
    for name, host in made.hosts.hosts.items():
        engine = scene.engines.get(name)
        log = str(made.log(name)) if engine else ""
        table.add_row(name, host.address, scene.state(name), str(engine.pid) if engine else "", log)
    console.print(
        f"{time.strftime('%H:%M', time.localtime(scene.started_at))}  {_complaint(scene)} You are on call.\n",
        soft_wrap=True,
        markup=False,
    )
    console.print(Padding(table, (0, 0, 0, 2)))
    console.print(
        f"\nA shell on a host, in another terminal (it begins where the logs are):\n\n  {shell.enter_words(made.hosts.record, hosts[0])}\n\n"
        "What may help there, beside ssh, ss, ip, ps and what else you like:\n",
        soft_wrap=True,
        markup=False,
    )
    for words, what in _helpful(scene):
        console.print(f"  # {what}\n  ncdiag {shlex.join(words)}", soft_wrap=True, markup=False)
    enter = shlex.join(shell.enter_argv(made.hosts.record, hosts[0])[:-2])
    return (
        f"{buffer.text()}\nThe same without it:\n\n  {enter}\n  (for ncdiag and ssh: --ssh-config, -F {made.ssh.config})\n\n"
        + (f"You have {minutes:.0f} min. " if minutes else "")
        + "Ctrl-C ends it and removes the hosts.\n"
    )


def _helpful(scene: Scene) -> list[tuple[list[str], str]]:
    """Commands of ncdiag as they can be typed in a shell on a host, and what they answer."""
    arguments, here = scene.ncdiag(short=True)
    if arguments[0] == "diagnose":
        lines = [(arguments, "what the logs say")]
    else:
        pid = str(scene.engines[here].pid)
        lines = [
            (arguments, f"on {here}: who holds up whom, live"),
            (["hang-dump", pid], f"on {here}: one look, with stacks"),
        ]
    if scene.fault.shape in ("gloo", "nodes"):
        where = ["--nodes", f"ssh:{','.join(scene.made.hosts.hosts)}"]
        lines += [(["preflight", *where], "are the hosts fit, and alike?"), (["reach", *where], "who reaches whom?")]
    return lines


def _complaint(scene: Scene) -> str:
    where = "host a" if scene.fault.shape == "tp2" else "hosts a and b"
    what = "job" if scene.fault.shape == "gloo" else "engine (vLLM)"
    if scene.fault.probe or scene.fault.causes[0] == HEALTHY:
        return f"Somebody says that something is not right with the {what} on {where}."
    return f"The {what} on {where} does not come up."


def truth(fault: Fault, ways: Sequence[str]) -> str:
    """What was broken, where, how, and the playbook."""
    console, buffer = make_console(None)
    first, *others = fault.causes
    place = [f"host {fault.node}"] if fault.node else []
    place += [f"rank {fault.rank}"] if fault.rank is not None else []
    rows = [("cause", first + (f"  ({' or '.join(others)} would be right too)" if others else ""))]
    if first not in exercise.NOTHING:
        rows += [("where", ", ".join(place) if place else "not one host or rank alone")]
    rows += [("stage", " or ".join(fault.stages))] if fault.stages else []
    rows += [("broken", fault.what)]
    rows += [("how" if number == 0 else "", way) for number, way in enumerate(ways)]
    if first not in exercise.NOTHING:
        rows += [("playbook", f"ncdiag playbook show {first}"), ("", load(first).title)]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column()
    for name, text in rows:
        table.add_row(f"  {name}", Text(plain(text)))
    console.print(table)
    again = f"{shell.program()} drill {fault.name}"
    return f"{buffer.text()}\n  once more: {again}\n  ncdiag alone: {again} --solve\n"


def seen(found: Mapping[str, Any], right: bool) -> str:
    """What ncdiag said, in one line, and whether that is so."""
    if found.get("cause", "") in ("", *QUIET):
        said = "it sees nothing that is wrong" + (f" (the start is {found['outcome']})" if found.get("outcome") else "")
    else:
        place = " ".join(f"{key} {found['where'][key]}" for key in ("node", "rank", "stage") if key in found["where"])
        said = one_line(f"{found['confidence']} {found['cause']} {place}: {found['summary']}")
    return f"ncdiag says: {said}\n{'which is right' if right else 'which is not what was broken'}\n"
