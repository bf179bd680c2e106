"""Reads NCCL logs (2.18 to 2.32; older ones as far as they look alike) in a stream and says what they say.

    parser = NcclLog()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            parser.feed(path, chunk)         # any pieces, any mix of sources; a cut line is joined with the next piece of its source
    facts = parser.finish()                  # NcclFacts: plain dataclasses; facts.to_json() for JSON

- `feed(source, data)`: bytes of one file or stream, in order. Decompress before. Lines without NCCL cost little and change nothing.
- `feed_lines(source, lines, first)`: the same for someone who has lines (bytes without the newline) with numbers already.
- `end(source)`: the source is complete; its last line needs no newline. `finish()` does it for all.
- Nothing raises on bad input: binary, cut, joined, endless lines are skipped or shortened, and counted in `Source`.
- Memory is bounded by ranks, peers and events kept, not by the size of the log.

`facts.processes[i]` is one (host, pid): version, settings, interface, network, devices. `facts.communicators[i].ranks[j]` is one rank with its
stage (`log_facts.STAGES`), links, timings, and `.process`, an index. `facts.events` are errors and remarkable lines by kind (`events.py` lists
kinds and fields), each with source, line number and text. A rank is told apart by host, pid and communicator, over all files together.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Dict, Iterable, Iterator, Optional

from . import assemble
from .lines import Lines, clean, split
from .log_facts import NcclFacts, Source
from .log_reader import CHANNEL, LogReader


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection meanwhile. A command that reads big logs does all its reading in it: reading leaves no cycles behind, and walking
    over all that was read again and again costs a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class NcclLog:
    """The parser: feed, feed, finish."""

    def __init__(self) -> None:
        self._lines: Dict[str, Lines] = {}
        self._sources: Dict[str, Source] = {}
        self._source = Source("")
        self._reader = LogReader()
        self._facts: Optional[NcclFacts] = None

    def feed(self, source: str, data: bytes) -> None:
        """Take the next bytes of a source."""
        reader = self._lines.get(source)
        if reader is None:
            reader = self._lines[source] = Lines()
        facts = self._begin(source)
        facts.size_bytes += len(data)
        for lines in reader.feed(data):
            facts.lines += self._reader.read(lines, facts.lines + 1)
        facts.cut_lines = reader.cut

    def feed_lines(self, source: str, lines: Iterable[bytes], first: int = 1) -> None:
        """Take complete lines of a source, the first of which has number `first`."""
        facts = self._begin(source)
        joined = b"".join([line + b"\n" for line in lines])
        block = split(clean(joined))
        facts.size_bytes += len(joined)
        self._reader.read(block, first)
        facts.lines = max(facts.lines, first + len(block) - 1)

    def end(self, source: str) -> None:
        """Nothing more comes from this source."""
        reader = self._lines.pop(source, None)
        last = reader.end() if reader else None
        if last is None:
            return
        facts = self._begin(source)
        facts.lines += 1
        if CHANNEL in last or (b" set by environment to " in last and not last.rstrip().endswith(b".")):
            return  # cut lines of these kinds look complete and are wrong
        self._reader.read([last + b"\n"], facts.lines)

    def finish(self) -> NcclFacts:
        """What all of it says. The parser is not to be fed afterwards."""
        for source in list(self._lines):
            self.end(source)
        if self._facts is None:
            reader, sources = self._reader, list(self._sources.values())
            self._facts = assemble.facts(reader.speakers.processes(), reader.events, sources, reader.banners)
        return self._facts

    def _begin(self, name: str) -> Source:
        if name != self._source.name or name not in self._sources:
            self._source = self._sources.setdefault(name, Source(name))
            self._reader.begin(self._source)
        return self._source
