"""Two runs in one log, one that works and one that does not: the setting between them names the part that fails."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import Life, Run
from ncdiag.logs.model import Line
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts, Process

_SET = re.compile(r"(?<![\w$])(NCCL_\w+)=[\"']?([^\s\"']*)")
_OFF = ("0", "off", "false")
_ON = ("1", "on", "true")
AVOIDS: dict[str, tuple[tuple[str, ...], str]] = {
    "NCCL_P2P_DISABLE": (_ON, "p2p-broken"),
    "NCCL_P2P_LEVEL": (("loc", "0"), "p2p-broken"),
    "NCCL_NVLS_ENABLE": (_OFF, "nvls-multicast-failure"),
    "NCCL_MNNVL_ENABLE": (_OFF, "imex-unavailable"),
    "NCCL_CUMEM_ENABLE": (_OFF, "cumem-failure"),
    "NCCL_CUMEM_HOST_ENABLE": (_OFF, "cumem-failure"),
    "NCCL_IB_DISABLE": (_ON, "ib-path-unreachable"),
    "NCCL_NET": (("socket",), "ib-path-unreachable"),
    "NCCL_IB_GID_INDEX": ((), "roce-gid-wrong"),
    "NCCL_SOCKET_IFNAME": ((), "socket-ifname-wrong"),
    "NCCL_NET_PLUGIN": (("none", "", "''"), "net-plugin-incompatible"),
}
"""Variable -> the values (none: any) that go round a part of NCCL, and what it means when only that works."""


def trials(life: Life, proofs: Iterable[Line], facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """`proofs`: lines that show a run at work. `order`: source -> position of its first line."""
    shown = list(proofs)
    for source, runs in life.runs.items():
        launched = [(run, end) for run, end in _spans(runs) if run.header or run.program]
        if len(launched) < 2:
            continue
        works = [
            any(line.source == source and run.start <= line.order < end for line in shown) for run, end in launched
        ]
        settings = [_settings(run, end, source, facts, order.get(source, 0.0)) for run, end in launched]
        for good, (run, _) in enumerate(launched):
            bad = next(
                (i for i, (other, _) in enumerate(launched) if not works[i] and _alike(run, other)),
                None,
            )
            if bad is None or not (works[good] or (not run.died and launched[bad][0].died and bad < good)):
                continue
            changed = [
                name
                for name, (value, _) in settings[good].items()
                if _avoids(name, value) and value != settings[bad].get(name, ("", None))[0]
            ]
            if len({AVOIDS[name][1] for name in changed}) != 1:
                continue
            name = changed[0]
            value, at = settings[good][name]
            before = launched[bad][0].line
            yield Signal(
                AVOIDS[name][1],
                Says.STRONG if works[good] else Says.HINT,
                f"a run works with {name}={value}, and one without it does not"
                if works[good]
                else f"a run without {name}={value} comes to nothing, and one with it shows no error",
                [at, *([before.evidence()] if before is not None else [])],
                order=run.start,
            )
            return


def restarts(
    proofs: Iterable[Line],
    worked_first: Callable[[str], float],
    facts: NcclFacts,
    order: dict[str, float],
    ended: Sequence[float],
) -> Iterator[Signal]:
    """The same where no command line is kept: processes of NCCL that begin after all earlier ones have said their last word are another run.

    `worked_first`: source -> where it first shows a job at work. `ended`: places of what ended a run for a reason of its own.
    """
    shown = list(proofs)
    for source, first in order.items():
        runs = _generations(facts, source)
        for before, after in itertools.pairwise(runs):
            start, end = first + _first(before), first + _first(after)
            stop = next((first + _first(run) for run in runs if _first(run) > _first(after)), float("inf"))
            works = any(line.source == source and end <= line.order < stop for line in shown)
            worked = worked_first(source) < end
            if not works or worked or any(start <= place < end for place in ended) or not _whole(before, facts):
                continue
            old, new = _avoiding(before), _avoiding(after)
            changed = [name for name in new if _avoids(name, new[name][0]) and new[name][0] != old.get(name, ("",))[0]]
            if len({AVOIDS[name][1] for name in changed}) == 1:
                value, at = new[changed[0]]
                yield Signal(
                    AVOIDS[changed[0]][1],
                    Says.STRONG,
                    f"a run works with {changed[0]}={value}, and the one before it, without, came to nothing",
                    [at, *(_said(run) for run in before[:2])],
                    order=start,
                )
                return


def _first(run: Sequence[Process]) -> int:
    return min(process.first.line for process in run if process.first)


def _generations(facts: NcclFacts, source: str) -> list[list[Process]]:
    """The processes of a source, in runs: one begins after all of the one before, which has all its ranks, have said their last word."""
    own = [p for p in facts.processes if p.first and p.last and p.first.source == p.last.source == source]
    runs: list[list[Process]] = []
    last = -1
    for process in sorted(own, key=lambda p: p.first.line if p.first else 0):
        if not runs or (process.first and process.first.line > last and _whole(runs[-1], facts)):
            runs.append([])
        runs[-1].append(process)
        last = max(last, process.last.line if process.last else -1)
    return runs


def _whole(run: Sequence[Process], facts: NcclFacts) -> bool:
    """Whether a run's processes are all that its communicators have, of which one at least is known."""
    own = {id(process) for process in run}
    comms = [comm for comm in facts.communicators if any(id(facts.processes[r.process]) in own for r in comm.ranks)]
    return bool(comms) and all(
        comm.nranks == len(comm.ranks) and all(id(facts.processes[r.process]) in own for r in comm.ranks)
        for comm in comms
    )


def _avoiding(run: Sequence[Process]) -> dict[str, tuple[str, Evidence]]:
    """The settings of a run's processes that go round a part of NCCL."""
    return {
        name: (value.strip().rstrip("."), Evidence(at.source, at.text.strip(), at.line))
        for process in run
        for name, value in process.settings.items()
        if name in AVOIDS and (at := process.evidence.get(name)) is not None
    }


def _said(process: Process) -> Evidence:
    assert process.last is not None  # as `_generations` chose
    return Evidence(process.last.source, process.last.text.strip(), process.last.line)


def _spans(runs: Sequence[Run]) -> list[tuple[Run, float]]:
    """Each run with where the next one begins."""
    return [(run, after.start) for run, after in zip(runs, [*runs[1:], Run(float("inf"))], strict=True)]


def _alike(run: Run, other: Run) -> bool:
    """Whether the other one is a run of the same, and is known to have come to nothing: a test without results, or a death."""
    same = run.program == other.program != ""
    return (run.header and other.header) or (same and (other.died or other.header))


def _avoids(name: str, value: str) -> bool:
    return name in AVOIDS and (not AVOIDS[name][0] or value.lower().rstrip(".") in AVOIDS[name][0])


def _settings(run: Run, end: float, source: str, facts: NcclFacts, first: float) -> dict[str, tuple[str, Evidence]]:
    """NCCL's variables of a run: those of its command line and those that NCCL says it read."""
    found: dict[str, tuple[str, Evidence]] = {}
    if run.line is not None:
        for name, value in _SET.findall(run.line.text):
            found[name] = (value, run.line.evidence())
    for process in facts.processes:
        for name, value in process.settings.items():
            at = process.evidence.get(name)
            if name in AVOIDS and at is not None and at.source == source and run.start <= first + at.line < end:
                found.setdefault(name, (value.strip().rstrip("."), Evidence(at.source, at.text.strip(), at.line)))
    return found
