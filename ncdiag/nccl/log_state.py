"""What the parser keeps while it reads: processes, their threads, and the ranks they initialise."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from .log_facts import TEXT_LIMIT, Line, Link, Process, Rank
from .transports import At, Seen

Profile = Tuple[Tuple[str, str], ...]  # name, value
LINKS_LIMIT = 1024  # different channel lines that are kept a rank

# What was seen of one rank's initialisation, in order; the numbers are only compared.
START, MET, TOPOLOGY, GRAPH, EXCHANGED, CONNECTING, CONNECTED, TUNED, COMPLETE, DESTROYED = range(1, 11)
# What was seen of a process before a communicator is named.
LOADED, INTERFACE, NETWORK, CHOSEN = range(1, 5)


def line(at: At) -> Line:
    source, number, text = at
    return Line(source, number, text[: 4 * TEXT_LIMIT].decode("utf-8", "replace")[:TEXT_LIMIT])


class RankState:
    """One rank of one communicator in one process."""

    comm_id: Optional[str] = None
    call: Optional[str] = None
    parent: Optional[str] = None  # pointer
    color: Optional[int] = None
    seen = 0
    at: Optional[At] = None
    complete = False
    connected_late = False
    tree = b""  # these three are read at the end
    bootstrap_timings = b""
    init_timings = b""

    def __init__(self, process: ProcessState, rank: int, nranks: int) -> None:
        self.process = process
        self.facts = Rank(rank, -1)
        self.nranks = nranks
        self.links: Dict[bytes, int] = {}  # tail of a channel line -> how often, before Init COMPLETE
        self.late: Dict[bytes, int] = {}  # the same, after
        self.collnet: List[Link] = []
        self.rings: Dict[int, bytes] = {}

    def mark(self, seen: int, at: At) -> None:
        """Note the furthest point of the initialisation, and the line that proves it."""
        if seen > self.seen:
            self.seen, self.at = seen, at


class ProcessState:
    """One (host, pid)."""

    def __init__(self, host: Optional[str], pid: Optional[int]) -> None:
        self.facts = Process(host, pid)
        self.ranks: List[RankState] = []
        self.by_pointer: Dict[str, RankState] = {}
        self.by_text: Dict[bytes, RankState] = {}  # `comm 0x… commId 0x…` of Init START
        self.seen = 0  # LOADED … CHOSEN
        self.chosen = (
            0  # "Using network" lines; more of them than communicators: one initialisation has not named itself yet
        )
        self.seen_at: Optional[At] = None
        self.bootstrap_blank: Optional[bool] = None  # "Bootstrap :" (2.23 and older) or "Bootstrap:"
        self.threads: List[Thread] = []
        self.profile: Profile = ()  # what it said about itself, at the end
        self.seen_links: Dict[bytes, Seen] = {}  # tail of a channel line -> what it says
        self.strangers: Dict[
            bytes, int
        ] = {}  # channel lines of another rank number than the thread's: a later communicator connects there
        self.loose: List[
            Tuple[Dict[bytes, int], Optional[RankState]]
        ] = []  # channel lines, and the rank they may be of

    def mark(self, seen: int, at: At) -> None:
        if seen > self.seen:
            self.seen, self.seen_at = seen, at

    def note(self, name: str, at: At) -> None:
        """Remember the first line that said it."""
        if name not in self.facts.evidence:
            self.facts.evidence[name] = line(at)

    def guess(self, dev: Optional[int]) -> Optional[RankState]:
        """The rank that a line without communicator speaks of: the only one, or the last begun on that device and not destroyed."""
        alive = [rank for rank in self.ranks if rank.seen < DESTROYED]
        if len(alive) > 1:
            alive = [rank for rank in alive if rank.facts.cuda_dev == dev] or alive
        return alive[-1] if alive else None


class Thread:
    """One (host, pid, tid, device): the communicator it is initialising, if it has said so."""

    __slots__ = ("dev", "last", "lines", "links", "links_left_out", "number", "process", "rank", "source", "tid")

    def __init__(self, process: ProcessState, tid: Optional[int], dev: Optional[int]) -> None:
        self.process = process
        self.tid = tid
        self.dev = dev
        self.rank: Optional[RankState] = None
        self.links: Dict[bytes, int] = {}
        self.links_left_out = 0
        self.lines = 0  # besides channel lines
        self.last = b""
        self.number = 0
        self.source = ""

    def current(self) -> Optional[RankState]:
        return self.rank if self.rank is not None else self.process.guess(self.dev)

    def begin(self, rank: RankState) -> None:
        """From here on this thread speaks of that rank. Channel lines it printed before stay with it until the end."""
        if self.rank is None and self.links:
            self.process.loose.append((self.links, rank))
        self.rank, self.links = rank, (rank.late if rank.complete else rank.links)
