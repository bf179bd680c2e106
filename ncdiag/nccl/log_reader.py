"""Lines -> what is kept of them: who speaks, and what it says. The part of the parser that must be fast."""

from __future__ import annotations

import itertools
import re
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import events, log_actions, messages, shortcuts, transports
from . import log_state as state
from .event_log import EventLog
from .lines import LINE_LIMIT
from .log_facts import Source
from .log_state import KEPT, LINKS_LIMIT, ProcessState, Thread
from .places import At
from .speakers import INFO, Speakers, Voice, voice_of

CACHE_LIMIT = 8192  # messages remembered
RECORDS_LIMIT = 64  # of one line

CHANNEL = b"NCCL INFO Channel "
_KEPT, _FIVE = slice(KEPT), slice(5)
_RECORD = re.compile(rb"NCCL (INFO|WARN|ATTN|TRACE|CALL|DIAG|ERROR) ")
_REPEATED = re.compile(rb" \[repeated (\d{1,9})x across (?:cluster|all nodes)\][^\n]*$")


class LogReader:
    """Reads lines of one source after the other."""

    def __init__(self) -> None:
        self.speakers = Speakers()
        self.events = EventLog()
        self.banners: List[Tuple[str, str, Optional[str]]] = []  # source, version, CUDA
        self._source = Source("")
        nobody = Thread(ProcessState(None, None, ("", 0, b"")), None, None)
        self._nobody = voice_of(nobody, b"\n", b"\n")  # as no line begins
        self._known: Dict[bytes, Any] = {}  # what messages say: log_actions.Action
        self._ring = b""  # the last one read

    def begin(self, source: Source) -> None:
        """What is read from here on belongs to that source."""
        self._source = source
        self.speakers.begin_source()

    def read(self, lines: Iterable[bytes], number: int) -> int:
        """The hot loop. `lines`: with their newlines; `number`: of the first one. How many lines they were.

        Most lines go on with what the last speaker says, most of those are channel lines, and most of those differ from an earlier one in the number
        of the channel only: one comparison and one dictionary, about 0.15 microseconds. Ready-made slices take half the time of startswith().
        """
        heads, known, readers = self.speakers.heads, self._known, shortcuts.READERS
        noise, channels, source, five, kept, next_ = (
            shortcuts.noise,
            shortcuts.channel,
            self._source.name,
            _FIVE,
            _KEPT,
            next,
        )
        thread, channel, channel_of, tail_of, info, info_of, head_of, five_of, message_of = self._nobody
        links, said, last, last_number = thread.links, 0, b"", 0
        number = before = number - 1
        for text in lines:
            number += 1
            if text[channel_of] == channel:
                last, last_number = text, number
                try:
                    next_(links[text[tail_of]])
                except KeyError:
                    self._channel(thread, text[tail_of.start - 2 : -1], (source, number, text))
                    links = thread.links
                continue
            if text[info_of] == info:
                reader = readers.get(text[five_of])
                if reader is noise:
                    continue
                message = text[message_of]
            else:
                voice = heads.get(text[head_of])  # most are as long as the last one
                if voice is None:
                    head, found, message = text.partition(INFO)
                    reader = readers.get(message[five])
                    if reader is noise or not found:
                        if not found and b"NCCL " in text:
                            self._other((source, number, text[:-1]))
                            links = thread.links
                        continue
                    voice = heads.get(head + INFO) or self._voice(head, (source, number, text[:-1]))
                    if voice is None:
                        links = thread.links
                        continue
                else:
                    reader = readers.get(text[five_of])
                    if reader is noise:
                        continue
                at = thread.at
                thread.lines += said
                if at[1] <= last_number or at[0] != source:
                    thread.at = source, last_number, last[kept]
                thread, channel, channel_of, tail_of, info, info_of, head_of, five_of, message_of = voice
                links, said, last, last_number = thread.links, 0, text, number
                if reader is channels and text[channel_of] == channel:
                    tail = text[tail_of]
                    if tail in links:
                        next_(links[tail])
                    else:
                        self._channel(thread, text[tail_of.start - 2 : -1], (source, number, text))
                        links = thread.links
                    continue
                message = text[message_of]
            if reader is None:
                action = known.get(message)
                if action is not None:
                    if action.__class__ is tuple:
                        action[0](thread, (source, number, text[kept]), *action[1])
                    elif action:
                        rank = thread.rank
                        if rank is None:
                            log_actions.mark(thread, (source, number, text[kept]), action)
                        elif rank.seen < action:
                            rank.seen, rank.at = action, (source, number, text[kept])
                    said, last, last_number = said + 1, text, number
                    continue
            elif reader(thread, (source, number, text[kept]), message):
                said, last, last_number = said + 1, text, number
                links = thread.links
                continue
            if self._info(thread, message, (source, number, text[:-1])):
                said, last, last_number = said + 1, text, number
            links = thread.links
        thread.spoke(said, source, last_number, last)
        return number - before

    def _voice(self, head: bytes, at: At) -> Optional[Voice]:
        """Who begins to speak. None when another record begins further left: then the whole line was read."""
        if b"NCCL " in head and len(_RECORD.findall(at[2])) > 1:
            self._joined(at)
            return None
        return self.speakers.voice(head, _kept(at))

    def _channel(self, thread: Thread, tail: bytes, at: At) -> None:
        """A channel line that is new for its rank. `tail`: from the channel's digits on."""
        rest = tail[2:]
        if rest == self._ring:  # the same on most channels
            self._ring_line(thread, tail[:2])
            return
        process, rank = thread.process, thread.rank
        known = process.seen_links.get(rest)
        seen = transports.read(rest) if known is None else known[0]
        if seen is None:
            self._odd_channel(thread, tail, at)
            return
        owner, _, _, rest = seen
        if rank is None or rank.number == owner:
            links = thread.links
            rank = rank or process.guess(thread.dev)
            if rank is not None and rank.seen < state.CONNECTING and (rest in links or len(links) < LINKS_LIMIT):
                rank.seen, rank.at = state.CONNECTING, _kept(at)
        else:
            links = process.strangers
        if rest in links:
            next(links[rest])
        elif len(links) < LINKS_LIMIT:
            links[rest] = itertools.count(1)
            if known is None:
                process.seen_links[rest] = seen, _kept(at)
        else:
            thread.links_left_out += 1

    def _odd_channel(self, thread: Thread, tail: bytes, at: At) -> None:
        """A ring, a line of several records, one that Ray has folded, or a cut one."""
        at = at[0], at[1], at[2].rstrip(b"\n")
        if b"NCCL " in tail and len(_RECORD.findall(at[2])) > 1:
            self._joined(at)
            return
        rest = tail[2:LINE_LIMIT]
        if b" [repeated " in rest:
            rest = self._unrepeated(rest)
            if transports.read(rest) is not None:
                self._channel(thread, tail[:2] + rest, at)
                return
        if transports.is_ring(rest):
            self._ring = rest
            self._ring_line(thread, tail[:2])

    def _ring_line(self, thread: Thread, channel: bytes) -> None:
        rank = thread.current() if channel.isdigit() else None
        if rank is not None and len(rank.rings) < 256:
            rank.rings[int(channel)] = self._ring

    def _info(self, thread: Thread, message: bytes, at: At) -> bool:
        """A message that is not known yet. False: the line holds several records, which were read."""
        if b"NCCL " in message and len(_RECORD.findall(at[2])) > 1:
            self._joined(at)
            return False
        head = at[2][: -len(message) - len(INFO)]
        at = _kept(at)
        message = self._unrepeated(message[:LINE_LIMIT]) if b" [repeated " in message else message[:LINE_LIMIT]
        action = messages.interpret(message)
        if action is None:
            if events.INFO_HINTS.search(message) and self.events.add(thread, head, "INFO", message, at):
                return True
            action = 0
        if isinstance(action, int):
            log_actions.mark(thread, at, action)
            self._remember(message, action)
        else:
            action[0](thread, at, *action[1])
            if action[0] not in log_actions.ONCE:
                self._remember(message, action)
        return True

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
            head, message = text[: records[0].start()], self._unrepeated(text[records[0].end() :])
            at = _kept(at)
            thread = self.speakers.voice(head, at)[0]
            thread.spoke(1, *at)
            self.events.add(thread, head, level, message, at)
        else:
            banner = messages.VERSION.search(text)
            if banner and len(self.banners) < 10_000:
                self.banners.append(
                    (at[0], banner.group(1).decode(), banner.group(2).decode() if banner.group(2) else None)
                )

    def _remember(self, message: bytes, action: log_actions.Action) -> None:
        if len(message) <= 512:
            if len(self._known) >= CACHE_LIMIT:
                self._known.clear()
            self._known[message] = action

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
            starts.append(floor + self.speakers.start(text[floor : record.start()], index == 0))
        for index, (record, start) in enumerate(zip(records, starts)):
            end = starts[index + 1] if index + 1 < len(records) else len(text)
            part = text[start:end]
            whole = index + 1 == len(records)
            if start <= record.start() < end and (whole or not part[record.start() - start :].startswith(CHANNEL)):
                self.read([(part if whole else part.rstrip()) + b"\n"], number)


def _kept(at: At) -> At:
    return at if len(at[2]) <= KEPT else (at[0], at[1], at[2][:KEPT])
