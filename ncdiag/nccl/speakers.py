"""Who speaks: what stands before `NCCL INFO` -> thread and process, over all sources."""

from __future__ import annotations

import re
from typing import Dict, List, Set, Tuple

from .lines import Speaker, label, speaker
from .log_state import ProcessState, Thread, line
from .transports import At

CACHE_LIMIT = 16384  # prefixes remembered
THREADS_LIMIT = 50_000  # beyond, threads of a process are not told apart
PROCESSES_LIMIT = 65_536  # beyond, processes are not told apart

_GLUED = re.compile(
    rb"[^\s:\[\]<>|(){}\"'/]{1,255}:\d{1,10}:\d{1,10} (?:\[-?\d{1,10}\] )?(?:[\w./+-]{1,200}:\d{1,7} (?:\([^()]{0,200}\) )?)?$"
)


class Speakers:
    """All threads and processes that have spoken."""

    def __init__(self) -> None:
        self.heads: Dict[bytes, Thread] = {}  # what stands before NCCL INFO, as it is; of the current source
        self._tails: Dict[Tuple[bytes, bytes], Thread] = {}  # its last two words
        self._threads: Dict[Tuple[object, ...], Thread] = {}
        self._processes: Dict[Tuple[object, ...], ProcessState] = {}
        self._hosts: Dict[int, Set[bytes]] = {}  # by pid

    def begin_source(self) -> None:
        """Another source: the same prefix may mean another process where it has no host."""
        self.heads.clear()
        self._tails.clear()

    def processes(self) -> List[ProcessState]:
        """In order of appearance."""
        return list(self._processes.values())

    def thread(self, head: bytes, at: At) -> Thread:
        """Who speaks. Equal prefixes are read once."""
        thread = self.heads.get(head)
        if thread is None:
            thread = self._by_words(head, at)
        thread.source, thread.number, thread.last = at
        return thread

    def _by_words(self, head: bytes, at: At) -> Thread:
        """Where a time stamp makes all prefixes differ, their last two words are known: `HOST:PID:TID [DEV]`, not the place in NCCL's code."""
        words = head.rsplit(None, 2)
        whole = len(words) > 1 and words[-1].startswith(b"[")
        key = (words[-2], words[-1]) if whole else (b"", head)
        thread = self._tails.get(key)
        if thread is None:
            thread = self._speaker_thread(speaker(head), at)
            if whole and len(self._tails) < CACHE_LIMIT and thread.process.facts.pid is not None:
                self._tails[key] = thread
        if len(self.heads) < CACHE_LIMIT:
            self.heads[head] = thread
        return thread

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
            process = self._processes[key] = ProcessState(who.host, who.pid if who.pid is not None else said.get("pid"))
            process.facts.first = line(at)
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
