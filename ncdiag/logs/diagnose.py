"""Files -> signals -> causes: the whole of `ncdiag diagnose` without its command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.explain import Says, Signal, Verdict, explain
from ncdiag.logs import structure
from ncdiag.logs.intake import Intake, Stream
from ncdiag.logs.readers import Readers
from ncdiag.logs.remedies import NEXT, REMEDIES
from ncdiag.logs.rules import RULES
from ncdiag.logs.scan import Scanner, lines_of
from ncdiag.model import Evidence
from ncdiag.nccl.log import NcclLog
from ncdiag.nccl.log_facts import NcclFacts


@dataclass
class Diagnosis:
    """What was read and what it leads to."""

    verdict: Verdict
    nccl: NcclFacts
    sources: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be read, and what limits the reading."""
    reached: list[tuple[str, str]] = field(default_factory=list)
    """`(source, stage)` of engine starts."""


def diagnose(paths: Sequence[str]) -> Diagnosis:
    """Reads files, folders and `-` and says what they mean. Never raises for what a file holds."""
    intake = Intake()
    return of_streams(intake.streams(paths), intake.notes)


def of_streams(streams: Iterable[Stream], notes: list[str] | None = None) -> Diagnosis:
    """The same over streams that are open already."""
    notes = [] if notes is None else notes
    readers = Readers()
    scanner, nccl = Scanner(RULES, readers.all()), NcclLog()
    order: dict[str, float] = {}
    for stream in streams:
        order[stream.name] = float(scanner.position)
        for first, lines in lines_of(stream.chunks):
            scanner.feed(stream.name, lines, first)
            nccl.feed_lines(stream.name, lines, first)
        scanner.end(stream.name)
        nccl.end(stream.name)
    facts = nccl.finish()
    signals = [*scanner.signals(), *structure.signals(facts, order)]
    signals.extend(_outcome(signals, readers, facts, order))
    return Diagnosis(explain(signals, REMEDIES, NEXT), facts, list(order), [*notes, *facts.notes], [(name, stage) for name, stage, _ in readers.starts.reached()])


def _outcome(signals: Sequence[Signal], readers: Readers, facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """`healthy` and `slow-not-hung`, where something shows that it worked and nothing that it ended."""
    starts, bench = readers.starts, readers.bench
    ending = [signal for signal in signals if not signal.condition and (signal.says is not Says.CASCADE or "engine reports" in signal.summary)]
    done = bench.worked or starts.served or starts.ready
    last = max((signal.order for signal in ending), default=-1.0)
    if ending and (done is None or last > done.order or any(signal.says >= Says.HINT for signal in ending)):
        return
    slow = starts.slow()
    if slow is not None and starts.ready is not None:
        yield slow
    if done is not None:
        yield Signal("healthy", Says.STRONG, "it came up and worked", [done.evidence()], condition=True, order=done.order)
        return
    line = structure.initialised(facts)
    if line is not None:
        yield Signal("healthy", Says.STRONG, "every communicator that is seen here is initialised, and no error follows", [Evidence(line.source, line.text.strip(), line.line)], condition=True,
                     order=order.get(line.source, 0.0) + line.line)


def communicators(facts: NcclFacts) -> list[dict[str, Any]]:
    """Communicators as in the JSON contract: short, without the links."""
    return [{"index": comm.index, "nranks": comm.nranks, "comm_id": comm.comm_id, "stages": comm.stages, "missing": comm.missing[:64], "culprits": comm.culprits, "reason": comm.reason,
             "transports": comm.transports, "between_nodes": comm.between_nodes, "spread": comm.spread} for comm in facts.communicators]


def ranks(facts: NcclFacts) -> list[dict[str, Any]]:
    """Ranks as in the JSON contract, at most one a rank and communicator."""
    out = []
    for comm in facts.communicators:
        for rank in comm.ranks:
            process = facts.processes[rank.process]
            out.append({"rank": rank.rank, "communicator": comm.index, "node": rank.node or process.host, "pid": process.pid, "state": "", "stage": rank.stage})
    return out
