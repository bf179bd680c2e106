"""What the parser keeps while it reads: processes, their threads, and the ranks they initialise."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import transports
from .log_facts import Line, Link, NetDevice, Process, Rank
from .places import At, line
from .transports import Key, Said, Seen

Profile = Tuple[Tuple[str, str], ...]  # name, value
Devices = Tuple[Tuple[Any, ...], ...]  # as NetDevice takes them
# Tail of a channel line -> as often as it was said, as the next number of an iterator: next() takes two thirds of the time of `+= 1`.
Counters = Dict[bytes, Iterator[int]]
LINKS_LIMIT = 1024  # different channel lines that are kept a rank
KEPT = 4096  # bytes of a line that are kept as evidence until the end

# What was seen of one rank's initialisation, in order; the numbers are only compared.
START, MET, TOPOLOGY, GRAPH, EXCHANGED, CONNECTING, CONNECTED, TUNED, COMPLETE, DESTROYED = range(1, 11)
# What was seen of a process before a communicator is named.
LOADED, INTERFACE, NETWORK, CHOSEN = range(1, 5)


class RankRead(Rank):
    """The facts of a rank. What is long to read and seldom asked for is read from the raw lines once somebody asks."""

    def __init__(self, rank: int, state: RankState) -> None:
        self.rank, self.process, self._state = rank, -1, state
        # each of them at once and in one order: objects whose attributes come later, one by one, take three times the memory
        self.pointer = self.bus_id = self.node = self.last_op = self.cuda_dev = self.nvml_dev = self.n_nodes = None
        self.local_rank = self.local_ranks = self.mnnvl = self.nvls = self.ring_gdr = self.ring_pxn = None
        self.coll_channels = self.nvls_channels = self.p2p_channels = self.net_device_count = self.op_count = None
        self.nvls_used = self.lazy_connect = self.connected = False
        self.stage, self.links_left_out, self.errors = "none", 0, 0

    @cached_property
    def stage_at(self) -> Optional[Line]:  # type: ignore[override]
        return line(self._state.at) if self._state.at else None

    @cached_property
    def trees(self) -> str:  # type: ignore[override]
        return self._state.tree[len(b"Trees ") :].decode("ascii", "replace")

    @cached_property
    def bootstrap_s(self) -> Dict[str, float]:  # type: ignore[override]
        return transports.seconds(self._state.bootstrap_timings)

    @cached_property
    def timings_s(self) -> Dict[str, float]:  # type: ignore[override]
        return transports.seconds(self._state.init_timings)

    @cached_property
    def links(self) -> List[Link]:  # type: ignore[override]
        state = self._state
        seen = state.process.seen_links
        return transports.links([*((*seen[tail], count) for tail, count in state.counts()), *state.collnet])


class ProcessRead(Process):
    """The facts of a process, likewise."""

    def __init__(self, state: ProcessState, host: Optional[str], pid: Optional[int], first: At) -> None:
        super().__init__(host, pid)
        del self.evidence, self.first, self.last, self.lines, self.net_devices
        self._state, self._first = state, first

    @cached_property
    def lines(self) -> int:  # type: ignore[override]
        state = self._state
        channels = sum(count for rank in state.ranks for _, count in rank.counts())
        return sum(thread.lines for thread in state.threads) + channels + state.unplaced

    @cached_property
    def net_devices(self) -> List[NetDevice]:  # type: ignore[override]
        return [NetDevice(*device) for device in self._state.devices]

    @cached_property
    def evidence(self) -> Dict[str, Line]:  # type: ignore[override]
        return {name: line(at) for name, at in self._state.notes.items()}

    @cached_property
    def first(self) -> Optional[Line]:  # type: ignore[override]
        return line(self._first)

    @cached_property
    def last(self) -> Optional[Line]:  # type: ignore[override]
        return line(self._state.last) if self._state.last else None


class RankState:
    """One rank of one communicator in one process."""

    __slots__ = (
        "_counts", "at", "bootstrap_timings", "call", "collnet", "color", "comm_id", "complete", "connected_late", "facts", "init_timings", "late",
        "links", "nranks", "number", "parent", "process", "rings", "seen", "text", "tree",
    )  # fmt: skip

    def __init__(self, process: ProcessState, rank: int, nranks: int) -> None:
        self.process = process
        self.facts = RankRead(rank, self)
        self.number, self.nranks = rank, nranks
        self.comm_id: Optional[str] = None
        self.call: Optional[str] = None
        self.parent: Optional[str] = None  # pointer
        self.color: Optional[int] = None
        self.seen = 0
        self.at: Optional[At] = None
        self.complete = self.connected_late = False
        self.text = b""  # `… comm 0x… commId 0x… - Init` of Init START, until Init COMPLETE repeats it
        self.tree = self.bootstrap_timings = self.init_timings = b""  # these are read at the end
        self.links: Counters = {}  # its channel lines before Init COMPLETE
        self.late: Counters = {}  # and after
        self._counts: Optional[List[Tuple[bytes, int]]] = None
        self.collnet: List[Said] = []
        self.rings: Dict[int, bytes] = {}

    def counts(self) -> List[Tuple[bytes, int]]:
        """Its channel lines, those after Init COMPLETE last, and how often each was said. Once nothing more is read."""
        if self._counts is None:
            self._counts = [(tail, next(count)) for lines in (self.links, self.late) for tail, count in lines.items()]
        return self._counts

    def link_keys(self) -> Dict[Key, None]:
        """Its links, without what is only asked for one by one."""
        seen = self.process.seen_links
        keys = {seen[tail][0][2]: None for tail in self.links}
        if self.late or self.collnet:
            keys.update((seen[tail][0][2], None) for tail in self.late)
            keys.update((found[2], None) for found, _, _ in self.collnet)
        return keys

    def mark(self, seen: int, at: At) -> None:
        """Note the furthest point of the initialisation, and the line that proves it."""
        if seen > self.seen:
            self.seen, self.at = seen, at


class ProcessState:
    """One (host, pid)."""

    def __init__(self, host: Optional[str], pid: Optional[int], first: At) -> None:
        self.facts = ProcessRead(self, host, pid, first)
        self.ranks: List[RankState] = []
        self.by_pointer: Dict[str, RankState] = {}
        self.seen = 0  # LOADED … CHOSEN
        self.chosen = (
            0  # "Using network" lines; more of them than communicators: one initialisation has not named itself yet
        )
        self.devices: Devices = ()
        self.notes: Dict[str, At] = {}  # the first line that said it
        self.last: Optional[At] = None  # at the end
        self.bootstrap_blank: Optional[bool] = None  # "Bootstrap :" (2.23 and older) or "Bootstrap:"
        self.threads: List[Thread] = []
        self.profile: Profile = ()  # what it said about itself, at the end
        self.seen_links: Dict[bytes, Tuple[Seen, At]] = {}  # tail of a channel line -> what it says, its first line
        self.strangers: Counters = {}  # channel lines of another rank number than the thread's: a later communicator connects there
        self.unplaced = 0  # channel lines that are of no rank, at the end
        self.unowned: List[Said] = []  # these lines
        self.loose: List[Tuple[Counters, Optional[RankState]]] = []  # channel lines, and the rank they may be of

    def mark(self, seen: int) -> None:
        if seen > self.seen:
            self.seen = seen

    def device_names(self) -> Devices:
        """Index, name, port and link of its network devices."""
        changed = self.facts.__dict__.get("net_devices")  # also by lines that speak of one device
        if changed is None:
            return self.devices
        return tuple([(device.index, device.name, device.port, device.link) for device in changed])

    def guess(self, dev: Optional[int]) -> Optional[RankState]:
        """The rank that a line without communicator speaks of: the only one, or the last begun on that device and not destroyed."""
        alive = [rank for rank in self.ranks if rank.seen < DESTROYED]
        if len(alive) > 1:
            alive = [rank for rank in alive if rank.facts.cuda_dev == dev] or alive
        return alive[-1] if alive else None


class Thread:
    """One (host, pid, tid, device): the communicator it is initialising, if it has said so."""

    __slots__ = ("at", "dev", "lines", "links", "links_left_out", "process", "rank", "tid")

    def __init__(self, process: ProcessState, tid: Optional[int], dev: Optional[int]) -> None:
        self.process = process
        self.tid = tid
        self.dev = dev
        self.rank: Optional[RankState] = None
        self.links: Counters = {}
        self.links_left_out = 0
        self.lines = 0  # besides channel lines
        self.at: At = ("", 0, b"")  # its last line

    def spoke(self, lines: int, source: str, number: int, text: bytes) -> None:
        """So many lines, and the last one, unless a later one is known."""
        self.lines += lines
        if source != self.at[0] or number >= self.at[1]:
            self.at = source, number, text[:KEPT]

    def current(self) -> Optional[RankState]:
        return self.rank or self.process.guess(self.dev)

    def begin(self, rank: RankState) -> None:
        """From here on this thread speaks of that rank. Channel lines it printed before stay with it until the end."""
        if self.rank is None and self.links:
            self.process.loose.append((self.links, rank))
        self.rank, self.links = rank, (rank.late if rank.complete else rank.links)
