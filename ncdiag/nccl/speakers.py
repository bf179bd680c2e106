"""Who speaks: what stands before `NCCL INFO` -> thread and process, over all sources."""

from __future__ import annotations

import functools
import re
from typing import Dict, List, Optional, Set, Tuple

from .lines import Speaker, label, speaker
from .log_state import ProcessState, Thread
from .places import At

INFO = b"NCCL INFO "
CACHE_LIMIT = 16384  # prefixes remembered
THREADS_LIMIT = 50_000  # beyond, threads of a process are not told apart
PROCESSES_LIMIT = 65_536  # beyond, processes are not told apart

_GLUED = re.compile(
    rb"[^\s:\[\]<>|(){}\"'/]{1,255}:\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] )?(?:[\w./+-]{1,200}:\d{1,7} (?:\([^()]{0,200}\) )?)?$"
)


# A thread, and how its lines begin behind what a launcher or a clock put in front. A plain tuple: it is unpacked in a third of a named one's time.
Voice = Tuple[
    Thread,
    bytes,  # `HOST:PID:TID [DEV] NCCL INFO Channel `
    slice,  # where that stands in a line
    slice,  # what follows it and two digits, up to the newline
    bytes,  # the first one without `Channel `
    slice,  # where that stands
    slice,  # all in front of the message, as in `heads`
    slice,  # the first five bytes of what follows
    slice,  # all that follows, up to the newline
]


def voice_of(thread: Thread, head: bytes, own: bytes) -> Voice:
    """`own`: the part of `head` that stands in all lines of the thread."""
    before, info = len(head) - len(own), own + INFO
    message, channel = before + len(info), info + b"Channel "
    return (
        thread, channel, _part(before, before + len(channel)), _part(before + len(channel) + 2, -1), info,
        _part(before, message), _part(0, message), _part(message, message + 5), _part(message, -1),
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _part(start: int, end: int) -> slice:
    return slice(start, end)


class Speakers:
    """All threads and processes that have spoken."""

    def __init__(self) -> None:
        self.heads: Dict[bytes, Voice] = {}  # all up to `NCCL INFO `, as it is; of the current source
        self._owns: Dict[bytes, Thread] = {}  # the end of it, from the blank before the host on
        self._threads: Dict[Tuple[object, ...], Thread] = {}
        self._processes: Dict[Tuple[object, ...], ProcessState] = {}
        self._hosts: Dict[int, Set[bytes]] = {}  # by pid

    def begin_source(self) -> None:
        """Another source: the same prefix may mean another process where it has no host."""
        self.heads.clear()
        self._owns.clear()

    def processes(self) -> List[ProcessState]:
        """In order of appearance."""
        return list(self._processes.values())

    def voice(self, head: bytes, at: At) -> Voice:
        """Who speaks. Equal prefixes are read once; where a time stamp makes all differ, their ends are equal."""
        voice = self.heads.get(head + INFO)
        if voice is not None:
            return voice
        own = _own(head)
        thread = self._owns.get(own)
        if thread is None:
            who = speaker(head)
            thread = self._speaker_thread(who, at)
            if own is not head and (who.pid is None or speaker(own)[:4] != who[:4]):
                own = head
            elif len(self._owns) < CACHE_LIMIT:
                self._owns[own] = thread
        voice = voice_of(thread, head, own)
        if len(self.heads) < CACHE_LIMIT:
            self.heads[head + INFO] = voice
        return voice

    def _speaker_thread(self, who: Speaker, at: At) -> Thread:
        said = label(who.before)
        key: Tuple[object, ...] = (who.host, who.pid)
        if who.pid is None:
            key = (None, None, at[0], said.get("pid"), said.get("rank"))
        process = self._processes.get(key)
        if process is None and len(self._processes) >= PROCESSES_LIMIT:
            key = (None, None, "beyond the limit")
            process = self._processes.get(key)
        if process is None:
            pid: Optional[int] = who.pid if who.pid is not None else said.get("pid")
            process = self._processes[key] = ProcessState(who.host, pid, at)
            if who.host is not None and who.pid is not None:
                self._hosts.setdefault(who.pid, set()).add(who.host.encode())
        process.facts.label = process.facts.label or said
        if at[0] not in process.facts.sources and len(process.facts.sources) < 100:
            process.facts.sources.append(at[0])
        tid = who.tid if len(self._threads) < THREADS_LIMIT else None
        thread = self._threads.get(key + (tid, who.dev))
        if thread is None:
            thread = self._threads[key + (tid, who.dev)] = Thread(process, tid, who.dev)
            process.threads.append(thread)
        return thread

    def start(self, before: bytes, first: bool) -> int:
        """Where the speaker of a record begins in what stands before it: at a host that is known, else after white space."""
        match = _GLUED.search(before, max(0, len(before) - 560))
        if first or not match:
            return 0 if first else len(before)
        host, pid = match.group().split(b":")[:2]
        fits = [len(name) for name in self._hosts.get(int(pid), ()) if host.endswith(name)]
        return match.start() + len(host) - max(fits) if fits else match.start()


def _own(head: bytes) -> bytes:
    """The last two words, ` HOST:PID:TID [DEV] `, with the blank before them; the whole where the last is no device."""
    if not head.endswith(b"] "):
        return head
    start = head.rfind(b" ", 0, head.rfind(b" [", 0, -1))
    return head[start:] if start >= 0 else head
