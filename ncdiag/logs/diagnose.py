"""Files -> signals -> causes: the whole of `ncdiag diagnose` without its command line."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.explain import Signal, Verdict, explain
from ncdiag.explain.consequences import GOOD
from ncdiag.logs import fanned, structure
from ncdiag.logs.alive import outlived
from ncdiag.logs.documents import Documents
from ncdiag.logs.intake import Intake, Stream
from ncdiag.logs.margins import Margins
from ncdiag.logs.printed import printed
from ncdiag.logs.readers import Readers
from ncdiag.logs.rearranged import renumbered
from ncdiag.logs.related import follows, hours_apart
from ncdiag.logs.remedies import NEXT, REMEDIES
from ncdiag.logs.rules import RULES
from ncdiag.logs.scan import Scanner, blocks_of
from ncdiag.logs.stamps import Stamp
from ncdiag.logs.together import refine
from ncdiag.logs.trying import Trying
from ncdiag.logs.unexplained import BLOCKS, NAMED_LIMIT, Unexplained
from ncdiag.nccl.log import NcclLog, without_collection
from ncdiag.nccl.log_facts import NcclFacts

_RAY = re.compile(
    rb"RayWorkerWrapper|\(raylet|\(\w*Ray\w* pid=|\([\w:]+ pid=\d+, ip=|ray::|ray\.(?:exceptions|get|init|remote)|/ray/|ray_(?:utils|executor|distributed_executor)|[Rr]ay cluster|\bray (?:start|job|status)\b|raysubmit_"
)


_OWN = re.compile(rb'\s*\{\s*"schema":\s*\d+,\s*"(?:command|kind)":\s*"([a-z0-9 -]+)"')
"""How the JSON of ncdiag's own results begins: its words are no log, and name what was found to be in order, too."""


_RAY_LINES = 50_000  # of a source, in which Ray is looked for


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


@without_collection()
def of_streams(streams: Iterable[Stream], notes: list[str] | None = None) -> Diagnosis:
    """The same over streams that are open already."""
    notes = [] if notes is None else notes
    readers = Readers()
    scanner, nccl = Scanner(RULES, readers.all()), NcclLog()
    documents = Documents(readers.stacks)
    order: dict[str, float] = {}
    spans: dict[str, tuple[Stamp | None, Stamp | None]] = {}
    hosts: dict[str, dict[int, str]] = {}
    numbers: dict[str, list[int]] = {}
    ray, blank = False, True
    dumps: set[str] = set()
    unexplained, trying = Unexplained(), Trying()
    for stream in streams:
        own = _OWN.match(stream.head)
        if own is not None:
            where = "-" if stream.name == "stdin" else stream.name
            notes.append(
                f"{stream.name} is a result of ncdiag ({own.group(1).decode()}), no log: ncdiag report {where}"
            )
            continue
        order[stream.name] = float(scanner.position)
        if documents.take(stream, order[stream.name]):
            blank = False
            dumps.add(stream.name)
            continue
        chunks, places = printed(stream)
        if places is not None:
            numbers[stream.name] = places
        text = _small(chunks) if fanned.is_fanned(stream.head) else b""
        by_host, margins = 0 < len(text) <= fanned.SIZE_LIMIT, Margins()
        if by_host:
            hosts[stream.name] = fanned.read(scanner, stream.name, text)
        for first, block in blocks_of(itertools.chain([text], chunks) if text else chunks):
            blank = blank and (not block or block.isspace())
            if not ray and first < _RAY_LINES and (b"ray" in block or b"Ray" in block or b", ip=" in block):
                ray = _RAY.search(block) is not None
            if not by_host:
                scanner.feed(stream.name, block, first)
            _feed(nccl, stream.name, block, first)
            if margins.blocks < BLOCKS:
                unexplained.look(stream.name, block, first, order[stream.name] - 1)
            margins.add(first, block)
        unexplained.look(stream.name, margins.end, margins.first, order[stream.name] - 1)
        trying.look(stream.name, margins.end, margins.first, order[stream.name] - 1)
        spans[stream.name] = margins.times()
        scanner.end(stream.name)
        nccl.end(stream.name)
    facts = nccl.finish()
    readers.exceptions.known = scanner.matched
    outlived(scanner.found, readers.life, readers.proofs())
    found = [*scanner.signals(), *documents.signals(), *structure.signals(facts, order, len(readers.bench.hosts) > 1)]
    found = [signal for signal in found if not readers.life.over(signal)]

    def unsaid(signals: Sequence[Signal]) -> Iterator[Signal]:
        yield from trying.signals(signals, readers)
        yield from unexplained.signals(_understood([*found, *signals], scanner, readers, facts))

    signals = refine(found, readers, documents, facts, order, ray, unsaid)
    fanned.name(signals, hosts)
    verdict = explain(
        signals, REMEDIES, NEXT, follows(signals, facts, readers.life.runs, order), hours_apart(signals, facts, spans)
    )
    renumbered(verdict.causes, numbers)
    if order and blank:
        verdict.causes[
            0
        ].summary = "what was given is empty: it says neither that something is wrong, nor that it works"
    known = dumps | scanner.blocks | _understood([*found, *signals], scanner, readers, facts) | readers.seen()
    unread = _unread(verdict, sorted(order.keys() - known)) if len(order) > 1 else []
    return Diagnosis(
        verdict,
        facts,
        list(order),
        [*notes, *unread, *documents.notes, *facts.notes],
        [(name, stage) for name, stage, _ in readers.starts.reached()],
    )


def _understood(signals: Iterable[Signal], scanner: Scanner, readers: Readers, facts: NcclFacts) -> set[str]:
    """Sources of which something was understood."""
    said = {item.source for signal in signals for item in signal.evidence}
    spoke = {source for process in facts.processes for source in process.sources}
    raised = {line.source for line, *_ in readers.exceptions.own()}
    return said | spoke | raised | {source for source, _ in scanner.matched} | {line.source for line in readers.works()}


def _unread(verdict: Verdict, sources: Sequence[str]) -> list[str]:
    """A note about sources in which nothing is known. What is said to be well is said of the others only: changes the verdict's summary."""
    if not sources:
        return []
    more = f" and {len(sources) - NAMED_LIMIT} more" if len(sources) > NAMED_LIMIT else ""
    names = ", ".join(sources[:NAMED_LIMIT]) + more
    for cause in verdict.causes[:1]:
        if cause.cause in GOOD:
            cause.summary += f"; of what stands in {names} nothing is known here"
    return [
        f"nothing that stands in {names} is known here, so it says neither that something is wrong, nor that it works"
    ]


def _feed(nccl: NcclLog, source: str, block: bytes, first: int) -> None:
    """Complete lines. What carriage returns set apart in one is read by itself."""
    if b"\r" not in block or b"NCCL" not in block:
        nccl.feed(source, block + b"\n")
        return
    for number, line in enumerate(block.split(b"\n"), first):
        whole, *pieces = line.split(b"\r")
        nccl.feed(source, whole + b"\n")
        for piece in pieces:
            nccl.feed_lines(source, [piece], number)


def _small(chunks: Iterator[bytes]) -> bytes:
    """A stream that can be kept; of a larger one its beginning, the rest stays in `chunks`."""
    text = b""
    for chunk in chunks:
        text += chunk
        if len(text) > fanned.SIZE_LIMIT:
            break
    return text


def communicators(facts: NcclFacts) -> list[dict[str, Any]]:
    """Communicators as in the JSON contract: short, without the links."""
    return [
        {
            "index": comm.index,
            "nranks": comm.nranks,
            "comm_id": comm.comm_id,
            "stages": comm.stages,
            "missing": comm.missing[:64],
            "culprits": comm.culprits,
            "reason": comm.reason,
            "transports": comm.transports,
            "between_nodes": comm.between_nodes,
            "spread": comm.spread,
        }
        for comm in facts.communicators
    ]


def ranks(facts: NcclFacts) -> list[dict[str, Any]]:
    """Ranks as in the JSON contract, at most one a rank and communicator."""
    out = []
    for comm in facts.communicators:
        for rank in comm.ranks:
            process = facts.processes[rank.process]
            out.append(
                {
                    "rank": rank.rank,
                    "communicator": comm.index,
                    "node": rank.node or process.host,
                    "pid": process.pid,
                    "state": "",
                    "stage": rank.stage,
                }
            )
    return out
