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
import re
from typing import Dict, Iterable, Iterator, List, Optional, Tuple

from . import assemble, events, log_actions, messages, transports
from . import log_state as state
from .event_log import EventLog
from .lines import LINE_LIMIT, Lines, clean
from .log_facts import NcclFacts, Source
from .log_state import LINKS_LIMIT, Thread
from .speakers import Speakers
from .transports import At

CACHE_LIMIT = 8192  # messages remembered
RECORDS_LIMIT = 64  # of one line
KEPT = 4096  # bytes of a line that are kept as evidence until the end

_CHANNEL = b"NCCL INFO Channel "
_INFO = b"NCCL INFO "
_NO_LINKS: Dict[bytes, int] = {}
_RECORD = re.compile(rb"NCCL (INFO|WARN|ATTN|TRACE|CALL|DIAG|ERROR) ")
_REPEATED = re.compile(rb" \[repeated (\d{1,9})x across (?:cluster|all nodes)\][^\n]*$")


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
        self._speakers = Speakers()
        self._events = EventLog()
        self._actions: Dict[bytes, log_actions.Action] = {}
        self._banners: List[Tuple[str, str, Optional[str]]] = []  # source, version, CUDA

    def feed(self, source: str, data: bytes) -> None:
        """Take the next bytes of a source."""
        reader = self._lines.get(source)
        if reader is None:
            reader = self._lines[source] = Lines()
        facts = self._begin(source)
        facts.size_bytes += len(data)
        for lines in reader.feed(data):
            self._read(lines, facts.lines + 1)
            facts.lines += len(lines)
        facts.cut_lines = reader.cut

    def feed_lines(self, source: str, lines: Iterable[bytes], first: int = 1) -> None:
        """Take complete lines of a source, the first of which has number `first`."""
        facts = self._begin(source)
        joined = b"\n".join(lines)
        block = clean(joined).split(b"\n") if joined else []
        facts.size_bytes += len(joined) + 1
        self._read(block, first)
        facts.lines = max(facts.lines, first + len(block) - 1)

    def end(self, source: str) -> None:
        """Nothing more comes from this source."""
        reader = self._lines.pop(source, None)
        last = reader.end() if reader else None
        if last is None:
            return
        facts = self._begin(source)
        facts.lines += 1
        if _CHANNEL in last or (b" set by environment to " in last and not last.rstrip().endswith(b".")):
            return  # cut lines of these kinds look complete and are wrong
        self._read([last], facts.lines)

    def finish(self) -> NcclFacts:
        """What all of it says. The parser is not to be fed afterwards."""
        for source in list(self._lines):
            self.end(source)
        return assemble.facts(self._speakers.processes(), self._events, list(self._sources.values()), self._banners)

    # --- reading --------------------------------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> Source:
        if name != self._source.name or name not in self._sources:
            self._source = self._sources.setdefault(name, Source(name))
            self._speakers.begin_source()
        return self._source

    def _read(self, lines: List[bytes], number: int) -> None:
        """The hot loop, about half a microsecond a line: channel lines of the same speaker in a row, other channel lines, other INFO lines."""
        heads, actions, noise, source = self._speakers.heads, self._actions, messages.NOISE, self._source.name
        run, cut, links, speaks, last = (
            b"\n",
            0,
            _NO_LINKS,
            None,
            b"",
        )  # the speaker of the last channel line, as prefix and as thread
        number -= 1
        for text in lines:
            number += 1
            if text.startswith(run):
                last = text
                try:
                    links[text[cut:]] += 1
                except KeyError:
                    self._channel(run[:-18], text[cut - 2 :], (source, number, text))
                continue
            if speaks is not None:
                speaks.last, speaks.number = last[:KEPT], number - 1
                speaks, run = None, b"\n"
            parts = text.split(_INFO, 1)
            if len(parts) == 2:
                head, message = parts
                begins = message[:5]
                if begins == b"Chann" and message[5:8] == b"el ":
                    speaks = heads.get(head)
                    if speaks is not None and message[10:] in speaks.links:
                        speaks.links[message[10:]] += 1
                    else:
                        speaks = self._channel(head, message[8:], (source, number, text))
                    if speaks is not None:
                        run, cut, links, last = head + _CHANNEL, len(head) + 20, speaks.links, text
                    continue
                if begins in noise:
                    continue
                thread, action = heads.get(head), actions.get(message)
                if thread is None or action is None:
                    self._info(head, message, (source, number, text))
                    continue
                thread.lines += 1
                thread.last, thread.number = text[:KEPT], number
                if action[0] is not log_actions.nothing:
                    action[0](thread, (source, number, thread.last), *action[1])
            elif b"NCCL " in text:
                self._other((source, number, text))
        if speaks is not None:
            speaks.last, speaks.number = last[:KEPT], number

    def _channel(self, head: bytes, tail: bytes, at: At) -> Optional[Thread]:
        """A channel line that is new for its rank, or whose speaker is. The speaker, or None where several records stand in the line."""
        if (b"NCCL " in tail or b"NCCL " in head) and len(_RECORD.findall(at[2])) > 1:
            self._joined(at)
            return None
        at = at if len(at[2]) <= KEPT else (at[0], at[1], at[2][:KEPT])
        thread = self._speakers.heads.get(head) or self._speakers.thread(head, at)
        rest = tail[2:]
        if rest in thread.links:  # a prefix with a time stamp: always new, its speaker is not
            thread.links[rest] += 1
            return thread
        if b" [repeated " in rest:
            rest = self._unrepeated(rest)
        seen = thread.process.seen_links.get(rest) or (transports.read(rest, at) if len(rest) <= 512 else None)
        if seen:
            self._link(thread, rest, seen, at)
        elif tail[:2].isdigit() and transports.is_ring(rest[:LINE_LIMIT]):
            rank = thread.current()
            if rank is not None and len(rank.rings) < 256:
                rank.rings[int(tail[:2])] = rest[:LINE_LIMIT]
        return thread

    def _link(self, thread: Thread, rest: bytes, seen: transports.Seen, at: At) -> None:
        process, rank = thread.process, thread.rank
        stranger = rank is not None and rank.facts.rank != seen.owner
        links = process.strangers if stranger else thread.links
        if rest not in links and len(links) >= LINKS_LIMIT:
            thread.links_left_out += 1
            return
        process.seen_links.setdefault(rest, seen)
        links[rest] = links.get(rest, 0) + 1
        if stranger:
            return
        rank = rank or process.guess(thread.dev)
        if rank is not None:
            rank.mark(state.CONNECTING, at)

    def _info(self, head: bytes, message: bytes, at: At) -> None:
        if (b"NCCL " in message or b"NCCL " in head) and len(_RECORD.findall(at[2])) > 1:
            self._joined(at)
            return
        at = at if len(at[2]) <= KEPT else (at[0], at[1], at[2][:KEPT])
        thread = self._speakers.thread(head, at)
        thread.lines += 1
        action = self._actions.get(message)
        if action is None:
            message = self._unrepeated(message[:LINE_LIMIT]) if b" [repeated " in message else message[:LINE_LIMIT]
            action = messages.interpret(message)
            if action is None:
                if events.INFO_HINTS.search(message) and self._events.add(thread, head, "INFO", message, at):
                    return
                action = log_actions.nothing, ()
            if len(message) <= 512 and action[0] not in log_actions.ONCE:
                if len(self._actions) >= CACHE_LIMIT:
                    self._actions.clear()
                self._actions[message] = action
        action[0](thread, at, *action[1])

    def _other(self, at: At) -> None:
        """A WARN, another level, or a banner that stands alone."""
        text = at[2][:LINE_LIMIT]
        records = list(_RECORD.finditer(text))
        if len(records) > 1:
            self._joined(at)
        elif records:
            level = records[0].group(1).decode()
            if level in ("TRACE", "CALL"):
                return
            thread = self._speakers.thread(text[: records[0].start()], at)
            thread.lines += 1
            if level == "INFO":
                self._info(text[: records[0].start()], text[records[0].end() :], at)
            else:
                self._events.add(
                    thread, text[: records[0].start()], level, self._unrepeated(text[records[0].end() :]), at
                )
        else:
            banner = messages.VERSION.search(text)
            if banner and len(self._banners) < 10_000:
                self._banners.append(
                    (at[0], banner.group(1).decode(), banner.group(2).decode() if banner.group(2) else None)
                )

    def _unrepeated(self, message: bytes) -> bytes:
        """The message without Ray's note that other processes said it too, which is counted."""
        match = _REPEATED.search(message)
        self._source.ray_repeated += int(match.group(1)) if match else 0
        return message[: match.start()] if match else message

    def _joined(self, at: At) -> None:
        """A line in which several records stand: each is read where it is certain where it begins, the rest is dropped."""
        number, text = at[1], at[2][:LINE_LIMIT]
        self._source.joined_lines += 1
        records = list(_RECORD.finditer(text))
        if len(records) > RECORDS_LIMIT:
            text, records = text[: records[RECORDS_LIMIT].start()], records[:RECORDS_LIMIT]
        starts = []
        for index, record in enumerate(records):
            floor = records[index - 1].end() if index else 0
            starts.append(floor + self._speakers.start(text[floor : record.start()], index == 0))
        for index, (record, start) in enumerate(zip(records, starts)):
            end = starts[index + 1] if index + 1 < len(records) else len(text)
            part = text[start:end]
            whole = index + 1 == len(records)
            if start <= record.start() < end and (whole or not part[record.start() - start :].startswith(_CHANNEL)):
                self._read([part.rstrip() if not whole else part], number)
