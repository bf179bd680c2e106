"""`healthy` and `slow-not-hung`: whether it worked in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ncdiag.explain import Says, Signal
from ncdiag.logs import structure
from ncdiag.logs.documents import Documents
from ncdiag.logs.how_far import INITIALISED, healthy, proof
from ncdiag.logs.model import STANDING, Line
from ncdiag.logs.readers import Readers
from ncdiag.logs.starts import Starts
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts

VERY_SLOW_S = 1800.0  # of a start, that is worth telling of a server that has been at work since
ANSWERS = 2  # that a server gives after its start, to be at work


def outcome(signals: Sequence[Signal], readers: Readers, facts: NcclFacts, order: dict[str, float]) -> Iterator[Signal]:
    """`healthy` and `slow-not-hung`, where something shows that it worked and nothing that it ended."""
    starts = readers.starts
    ending = [signal for signal in signals if not signal.condition]
    real = [signal for signal in ending if signal.order < STANDING - 9]
    moving, slow = starts.progress.moving() or _under_way(readers), starts.slow()
    long = readers.lasting.slow()
    if moving is not None and all(signal.order < moving.order and signal.says <= Says.SYMPTOM for signal in real):
        yield moving
    elif slow is not None and not real and starts.ready is None and starts.longest is not None:
        yield slow
    done = proof(readers)
    if ending and (done is None or any(signal.says >= Says.HINT or not _outdone(signal, readers) for signal in ending)):
        return
    if slow is not None and starts.ready is not None:
        yield _beside(slow, starts, done)
    elif long is not None and done is not None and (done is readers.life.stepped or _then_stepped(long, readers)):
        yield _beside(long, starts, done)
    elif long is not None and done is None:
        yield replace(long, says=Says.HINT)
    if done is not None:
        yield healthy(done, readers)
        return
    line = structure.initialised(facts)
    if line is not None and line.source in readers.life.interrupted:
        stopped = readers.life.interrupted[line.source]
        yield Signal(
            "",
            Says.SYMPTOM,
            "every communicator that is seen here is initialised; then somebody ended the run by hand: the first collective may hang",
            [stopped.evidence()],
            order=stopped.order,
            candidates=("p2p-broken", "rank-stuck-outside-collective", "framework-version-bug"),
        )
    elif line is not None:
        yield Signal(
            "healthy",
            Says.HINT,
            INITIALISED,
            [Evidence(line.source, line.text.strip(), line.line)],
            condition=True,
            order=order.get(line.source, 0.0) + line.line,
        )


def _outdone(signal: Signal, readers: Readers) -> bool:
    """Whether the same source shows a job at work after it: what another one shows may be another run."""
    return bool(signal.evidence) and readers.worked_last(signal.evidence[0].source) > signal.order


def _under_way(readers: Readers) -> Signal | None:
    """Counted work before a job that has not begun."""
    begun = readers.life.stepped or readers.starts.served or readers.bench.worked
    return readers.lasting.moving() if begun is None else None


def _then_stepped(long: Signal, readers: Readers) -> bool:
    """Whether the first step of a training follows a long piece of work."""
    return readers.life.first_step.get(long.evidence[0].source, -1.0) > long.order


def _beside(slow: Signal, starts: Starts, done: Line | None) -> Signal:
    """A slow start is what there is to say of a job that has just begun; one that goes on answering is well, and was slow once."""
    if done is None:
        return slow
    if starts.answers >= ANSWERS and starts.slow(VERY_SLOW_S) is None:
        return replace(slow, says=Says.HINT, order=done.order + 0.5)
    return replace(slow, order=min(slow.order, done.order - 0.5))


def fine(documents: Documents, readers: Readers) -> Iterator[Signal]:
    """Nothing but facts was given, and they are good. That says what was read is well, not that the job is."""
    if documents.fine is not None:
        yield replace(documents.fine, cause="healthy")
    line = readers.verbs.up or readers.smi.calm or readers.query.calm
    if line is not None:
        yield Signal(
            "healthy",
            Says.HINT,
            "what was given shows nothing wrong",
            [line.evidence()],
            condition=True,
            order=line.order,
        )
