"""Files -> signals -> causes: the whole of `ncdiag diagnose` without its command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ncdiag.explain import Says, Signal, Verdict, explain
from ncdiag.logs import structure
from ncdiag.logs.documents import Documents
from ncdiag.logs.intake import Intake, Stream
from ncdiag.logs.model import STANDING
from ncdiag.logs.readers import Readers
from ncdiag.logs.remedies import NEXT, REMEDIES
from ncdiag.logs.rules import RULES
from ncdiag.logs.scan import Scanner, blocks_of
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
    documents = Documents(readers.stacks)
    order: dict[str, float] = {}
    for stream in streams:
        order[stream.name] = float(scanner.position)
        if documents.take(stream, order[stream.name]):
            continue
        for first, block in blocks_of(stream.chunks):
            scanner.feed(stream.name, block, first)
            nccl.feed(stream.name, block + b"\n")
        scanner.end(stream.name)
        nccl.end(stream.name)
    facts = nccl.finish()
    readers.exceptions.known = scanner.matched
    signals = _without_the_end([*scanner.signals(), *documents.signals(), *structure.signals(facts, order)], readers)
    _unlimited(signals, readers)
    signals.extend(_left_over(signals, readers))
    _silent_death(signals, readers, len(order))
    signals.extend(_outcome(signals, readers, facts, order))
    if not signals:
        signals.extend(_fine(documents, readers))
    return Diagnosis(explain(signals, REMEDIES, NEXT), facts, list(order), [*notes, *documents.notes, *facts.notes], [(name, stage) for name, stage, _ in readers.starts.reached()])


def _without_the_end(signals: Sequence[Signal], readers: Readers) -> list[Signal]:
    """Without the noise of servers that had come up and were then told to end, and of what ran beside them."""
    ended = readers.starts.ended
    if not ended:
        return list(signals)

    def noise(signal: Signal) -> bool:
        source = signal.evidence[0].source if signal.evidence else ""
        weak = signal.says <= Says.SYMPTOM or signal.cause in ("engine-exception", "framework-version-bug", "rank-died")
        after = source in ended and signal.order > ended[source]
        aside = source not in readers.starts.sources and readers.starts.served is not None
        return weak and (after or aside or (source not in ended and signal.says is Says.CASCADE))

    return [signal for signal in signals if not noise(signal)]


def _unlimited(signals: Sequence[Signal], readers: Readers) -> None:
    """Locked memory is known to be unlimited: registering memory fails for another reason."""
    if readers.limits.unlimited is None:
        return
    for signal in signals:
        if signal.cause in ("memlock-limit", "rdma-memory-registration") and signal.says is not Says.NAMED:
            signal.says = Says.HINT if signal.cause == "memlock-limit" else Says.STRONG


def _left_over(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A table of sockets shows an engine's process at the port that is taken: perhaps an earlier run."""
    for signal in signals:
        holder = readers.sockets.holder(str(signal.where.get("port", ""))) if signal.cause == "port-in-use" else None
        if holder is not None:
            signal.says = min(signal.says, Says.STRONG)
            yield Signal("stale-process", Says.STRONG, f"port {holder.local_port} is held by {holder.process}: an earlier run, if it is none of this one", [holder.line.evidence()], order=signal.order + 1)
            return


def _silent_death(signals: Sequence[Signal], readers: Readers, sources: int) -> None:
    """A peer is gone, several logs are here, and none of them holds an exception of its own: a process was killed."""
    if sources < 2 or readers.exceptions.own() or any(signal.says >= Says.STRONG and not signal.condition for signal in signals):
        return
    for signal in signals:
        if signal.cause == "rank-died" and signal.says is Says.HINT:
            signal.says = Says.STRONG


def _outcome(signals: Sequence[Signal], readers: Readers, facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """`healthy` and `slow-not-hung`, where something shows that it worked and nothing that it ended."""
    starts, bench = readers.starts, readers.bench
    ending = [signal for signal in signals if not signal.condition]
    real = [signal for signal in ending if signal.order < STANDING - 9]
    moving, slow = starts.moving(), starts.slow()
    if moving is not None and all(signal.order < moving.order and signal.says <= Says.SYMPTOM for signal in real):
        yield moving
    elif slow is not None and not real and starts.ready is None and starts.longest is not None:
        yield slow
    done = bench.worked or starts.served or starts.ready or starts.worked
    last = max((signal.order for signal in ending), default=-1.0)
    if ending and (done is None or last > done.order or any(signal.says >= Says.HINT for signal in ending)):
        return
    if slow is not None and starts.ready is not None:
        yield slow
    if done is not None:
        yield Signal("healthy", Says.STRONG, "it came up and worked", [done.evidence()], condition=True, order=done.order)
        return
    line = structure.initialised(facts)
    if line is not None:
        yield Signal("healthy", Says.STRONG, "every communicator that is seen here is initialised, and no error follows", [Evidence(line.source, line.text.strip(), line.line)], condition=True,
                     order=order.get(line.source, 0.0) + line.line)


def _fine(documents: Documents, readers: Readers) -> Iterator[Signal]:
    """Nothing but facts was given, and they are good. That says what was read is well, not that the job is."""
    if documents.fine is not None:
        yield replace(documents.fine, cause="healthy")
    line = readers.verbs.up or readers.smi.calm
    if line is not None:
        yield Signal("healthy", Says.HINT, "what was given shows nothing wrong", [line.evidence()], condition=True, order=line.order)


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
