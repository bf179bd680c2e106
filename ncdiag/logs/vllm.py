"""How far a vLLM, SGLang or Ray start came, in which versions, with which rendez-vous; and whether it served."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import trains
from ncdiag.logs.bars import Bar, Bars
from ncdiag.logs.model import STANDING, Line, speaker
from ncdiag.nodeset import ranks

MARKERS: tuple[tuple[str, str], ...] = (
    ("vLLM API server version", "config"),
    ("non-default args", "config"),
    ("Initializing a V1 LLM engine", "engine-init"),
    ("Initializing an LLM engine", "engine-init"),
    ("headless multiproc executor", "engine-init"),
    ("Waiting for creating a placement group", "placement-group"),
    ("DP group leader: node_rank", "workers-spawn"),
    ("distributed_init_method=", "rendezvous"),
    ("vLLM is using nccl==", "nccl"),
    ("GPU P2P access cache", "nccl"),
    ("is assigned as DP rank", "groups-ready"),
    ("Starting to load model", "load"),
    ("Load weight begin", "load"),
    ("Loading safetensors checkpoint shards", "load"),
    ("Loading weights took", "loaded"),
    ("Load weight end", "loaded"),
    ("Model loading took", "loaded"),
    ("Available KV cache memory", "profiled"),
    ("GPU KV cache size", "kv-cache"),
    ("CPU KV cache size", "kv-cache"),
    ("KV cache size: ", "kv-cache"),
    ("# GPU blocks:", "kv-cache"),
    ("Graph capturing finished", "captured"),
    ("init engine (profile", "engine-ready"),
    ("Application startup complete", "ready"),
    ("The server is fired up and ready to roll", "ready"),
    ("Started GRPCInferenceService at", "ready"),
)
"""Literal -> stage, in the order of a start. Source: vLLM 0.6.6 to 0.33, SGLang 0.4, Triton 2."""

ORDER = list(dict.fromkeys(stage for _, stage in MARKERS))
_VERSION = re.compile(
    r"(?:LLM engine|Launching vLLM|vLLM API server version|API server version) ?\(?v?(?P<version>\d+\.\d+\.\d+[\w.+-]*)\)?"
)
_INIT = re.compile(
    r"world_size=(?P<world>\d+) rank=(?P<rank>\d+) local_rank=(?P<local>\d+) distributed_init_method=(?P<url>\S+)"
)
_CLOCK = re.compile(r"(?<!\d)(\d\d):(\d\d):(\d\d)(?!\d)")
_LASTED = re.compile(
    r"(?P<what>Loading weights took|Model loading took [\d.]+ Gi?B(?: memory)? and|torch\.compile takes|Compiling a graph for [\w (),]+? takes|Graph capturing finished in|init engine \([^)]*\) took|Initial profiling/warmup run took|Time spent downloading weights for \S+:) (?P<s>\d+(?:\.\d+)?) ?s"
)
_BAR = re.compile(
    r"(?P<what>[\w ,()-]{0,60}?):?\s+(?P<percent>\d{1,3})%(?: Completed)? ?\|.*?(?P<done>\d[\d.]*[kKMGT]?)/(?P<all>\d[\d.]*[kKMGT]?)"
)
_ELAPSED = re.compile(r"\[(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d\d)<")
_PREPARES = re.compile(
    r"(?i)token|\bmap|filter|load|download|fetch|warm|compil|captur|split|extract|pars|process(?!ed prompts)|pack|convert|quanti|index|cach|saving|merg|tun(?:e|ing)"
)
GREW = 2  # times that a bar grew, to be work that moves
_SERVED = re.compile(
    r'" 200 OK|HTTP/1\.1" 200|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]|Successful requests: +[1-9]'
)
_ANSWERED = re.compile(
    r'"POST [^"]*" 200|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]|Successful requests: +[1-9]'
)
_READY = ORDER.index("ready")
WORKED = (
    "node:__internal_head__",
    "initialized with NCCL version",
    "elapsed time per iteration",
    "Ray runtime started.",
    "All ray workers are active",
    "tokens/sec",
    "Throughput: ",
    "samples per second",
    "RunningAvgSamplesPerSec=",
    "Benchmark duration (s)",
    "Output token throughput",
    "Training complete",
    "'train_runtime': ",
    "'grad_norm': ",
    "All ranks passed",
    "sanity check is successful",
)
"""What is printed only after the ranks or nodes had done something together. Sources: Ray's cluster_resources() and `ray start`, DeepEP, Megatron, transformers' trainer, vLLM and SGLang benchmarks, vLLM's sanity test."""
ENDED = (
    "shutdown triggered",
    "trigger received signal=",
    "SIGTERM received at time",
    "Shutting down",
    "Gracefully stopping",
    "Received exit signal SIGTERM",
)
"""What a server says when it is told to end."""
NO_BLOCK = "No available shared memory broadcast block found"
STARVED = 3  # such lines, one a minute, after which nothing else happened
LOADING = ("Load weight begin", "Detected fp8 checkpoint", "Init torch distributed", "Attempting to load")
CHECKPOINT = re.compile(r"Checkpoint size: (?P<size>\d+(?:\.\d+)?) GiB")
_FITS = {
    "placement-group": ("ray-resources-infeasible", "ray-placement-group-leaked", "ray-gcs-unreachable"),
    "workers-spawn": ("rank-missing", "bootstrap-blocked-firewall", "node-ip-wrong-interface"),
    "rendezvous": ("rank-missing", "bootstrap-blocked-firewall", "socket-ifname-wrong"),
    "nccl": ("p2p-broken", "socket-ifname-wrong", "bootstrap-blocked-firewall"),
    "groups-ready": ("rank-missing", "p2p-broken", "node-ip-wrong-interface"),
    "load": ("storage-slow", "slow-not-hung", "rank-stuck-outside-collective"),
    "loaded": ("node-ip-wrong-interface", "slow-load-peer-timeout", "rank-stuck-outside-collective"),
    "profiled": ("p2p-broken", "slow-not-hung", "rank-stuck-outside-collective"),
    "kv-cache": ("p2p-broken", "slow-not-hung", "rank-stuck-outside-collective"),
    "captured": ("slow-not-hung", "rank-stuck-outside-collective"),
}
"""Stage after which a start stands still -> what that usually is."""
SLOW_LOAD_S = 300.0
_ORIGIN = re.compile(r"\[pod/([^\]\s]+)\]|(?<![\w.-])([A-Za-z][\w.-]{0,60}) +\|(?= )|ip=([\w.:]+)\)|^ *(\d{1,6}): ")


def _step(what: str) -> str:
    """`Loading weights took` -> `Loading weights`."""
    return re.sub(r" took .*", "", what) if " took " in what else what.rsplit(" ", 1)[0]


_CAME_UP = "nothing has to be mended: it came up. A next start is shorter where the compile caches (~/.cache/vllm, TRITON_CACHE_DIR) and the weights lie on a local disk that outlives the container"


def _slow(summary: str, line: Line, ready: bool = False) -> Signal:
    return Signal(
        "slow-not-hung",
        Says.STRONG,
        summary,
        [line.evidence()],
        speaker(line.shown),
        condition=True,
        order=line.order,
        remedy=_CAME_UP if ready else "",
    )


def _seconds(elapsed: re.Match[str]) -> int:
    return int(elapsed["h"] or 0) * 3600 + int(elapsed["m"]) * 60 + int(elapsed["s"])


def origin(line: Line) -> str:
    """Which node, pod or task a line comes from, as far as its prefix says so; else its source."""
    return ":".join(
        [line.source, *(group for match in _ORIGIN.finditer(line.shown[:200]) for group in match.groups() if group)]
    )


@dataclass
class _Source:
    stage: int = -1
    line: Line | None = None
    versions: dict[str, Line] = field(default_factory=dict)
    first: Line | None = None
    front: bool = False
    """It is the log of a server, which says when it has come up."""
    clocks: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds of the day of its first marker."""


class Starts:
    """One engine start per source."""

    triggers = tuple(
        dict.fromkeys(
            [literal for literal, _ in MARKERS]
            + [
                "200 OK",
                '1.1" 200',
                "generation throughput",
                "gen throughput",
                "Successful requests",
                *WORKED,
                *ENDED,
                *LOADING,
                NO_BLOCK,
                "torch.compile takes",
                "Compiling a graph",
                "warmup run took",
                "downloading weights",
                "Checkpoint size: ",
                "%|",
                "% Completed |",
            ]
        )
    )

    def __init__(self) -> None:
        self.sources: dict[str, _Source] = {}
        self.methods: dict[int, tuple[str, Line]] = {}
        self.served: Line | None = None
        self.ready: Line | None = None
        self.first_up: dict[str, float] = {}
        """Source -> order of the line with which a server came up first."""
        self.answers = 0
        """How many answers to users are seen after the start."""
        self.worked: Line | None = None
        self.ray_up: dict[str, float] = {}
        """Source -> order of the last line with which `ray start` came up: the head was reached."""
        self.ended: dict[str, float] = {}
        """Source -> order of the line with which a server that had come up began to end."""
        self.longest: tuple[float, str, Line] | None = None
        """Seconds, what, line of the step that lasted longest."""
        self.bar: tuple[int, Line, int] | None = None
        """The progress bar that stands last: percent, line, and how often it grew."""
        self.bars = Bars()
        self._starved: list[Line] = []
        self._stood: list[Line] = []
        """Such lines with which a source ends."""
        self.waited: tuple[Line, int] | None = None
        """The first of several such lines in a row that something else followed, and how many minutes they span."""
        self._bars: dict[str, tuple[int, Line]] = {}
        """Origin of a log line -> the last it said of its loading: percent, line."""
        self._loaded: dict[int, Line] = {}
        self._seen: dict[int, Line] = {}
        self._checkpoints: dict[str, Line] = {}

    def take(self, line: Line) -> bool:
        source = self.sources.setdefault(line.source, _Source())
        source.first = source.first or line
        source.front = source.front or "(APIServer" in line.before or "(APIServer" in line.text
        if NO_BLOCK in line.text:
            self._starved.append(line)
            return False
        if len(self._starved) > 1 and self.waited is None:
            self.waited = self._starved[0], len(self._starved)
        self._starved.clear()
        lasted = _LASTED.search(line.text)
        if lasted and (self.longest is None or float(lasted["s"]) > self.longest[0]):
            self.longest = (float(lasted["s"]), _step(lasted["what"]), line)
        bar = None if trains(line.text) else _BAR.search(line.text)
        if bar:
            percent, grew = int(bar["percent"]), 0
            if self.bar is not None and self.bar[1].source == line.source:
                grew = self.bar[2] + (percent > self.bar[0]) if percent >= self.bar[0] else 0
            self.bar = (percent, line, grew)
            lasted = _ELAPSED.search(line.text)
            if lasted:
                self.bars.add(line, (bar["what"].strip(), bar["all"]), percent, _seconds(lasted))
            if len(self._bars) < 10_000:
                self._bars[origin(line)] = (percent, line)
        elif "Loading weights took" in line.text or "Load weight end" in line.text:
            self._bars[origin(line)] = (100, line)
        for literal, name in MARKERS:
            if literal in line.text:
                index = ORDER.index(name)
                clock = _CLOCK.search(line.text)
                if clock:
                    source.clocks.setdefault(name, int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]))
                if index >= source.stage:
                    source.stage, source.line = index, line
                if index == _READY:
                    self.ready = line
                    self.first_up.setdefault(line.source, line.order)
                break
        if any(word in line.text for word in WORKED):
            self.worked = line
            if "Ray runtime started." in line.text:
                self.ray_up[line.source] = line.order
        if source.stage == _READY and line.source not in self.ended and any(word in line.text for word in ENDED):
            self.ended[line.source] = line.order
        rank = speaker(line.shown).get("rank")
        if isinstance(rank, int):
            (
                self._loaded if "Load weight end" in line.text or "Loading weights took" in line.text else self._seen
            ).setdefault(rank, line)
        checkpoint = CHECKPOINT.search(line.text)
        if checkpoint:
            self._checkpoints.setdefault(checkpoint["size"], line)
        version = _VERSION.search(line.text)
        if version:
            source.versions.setdefault(version["version"], line)
        init = _INIT.search(line.text)
        if init:
            self.methods.setdefault(int(init["rank"]), (init["url"], line))
        self.answers += self.ready is not None and _ANSWERED.search(line.text) is not None
        if self.ready is not None and self.served is None and _SERVED.search(line.text):
            self.served = line
        return False

    def routine(self, line: Line) -> bool:
        """What only shows that ranks worked together, or that a request was answered."""
        text = line.text
        details = (_LASTED, _VERSION, _INIT, CHECKPOINT)
        return (
            not any(literal in text for literal, _ in MARKERS)
            and not any(word in text for word in (NO_BLOCK, "Ray runtime started.", *ENDED))
            and not any(pattern.search(text) for pattern in details)
            and (trains(text) or _BAR.search(text) is None or origin(line) == line.source)
            and "rank" not in speaker(line.shown)
        )

    def end(self, source: str) -> None:
        if len(self._starved) >= STARVED:
            self._stood = self._starved
        self._starved = []

    def signals(self) -> Iterator[Signal]:
        yield from self._versions()
        yield from self._addresses()
        if len(self._checkpoints) > 1 and len({line.source for line in self._checkpoints.values()}) > 1:
            yield Signal(
                "model-path-missing",
                Says.STRONG,
                "the nodes load different models: checkpoint sizes " + " and ".join(sorted(self._checkpoints)) + " GiB",
                [line.evidence() for line in self._checkpoints.values()],
                order=min(line.order for line in self._checkpoints.values()),
                remedy="put the same files at the same path on all nodes",
            )
        if self._stood:
            yield Signal(
                "",
                Says.SYMPTOM,
                f"the engine's message queue has not moved for {len(self._stood)} min and nothing follows",
                [line.evidence() for line in self._stood[:2]],
                order=self._stood[0].order,
                candidates=("rank-stuck-outside-collective", "collective-desync", "slow-not-hung"),
            )
        late = sorted(set(self._seen) - set(self._loaded))
        if self._loaded and late and self.ready is None:
            some = [self._seen[late[0]], next(iter(self._loaded.values()))]
            yield Signal(
                "slow-load-peer-timeout",
                Says.HINT,
                f"rank {ranks(self._loaded)} has loaded its weights, rank {ranks(late)} has not yet: the first ones wait for the others",
                [line.evidence() for line in some],
                {"rank": ranks(late)},
                condition=True,
                order=some[0].order,
            )
        yield from self._standing()

    def _standing(self) -> Iterator[Signal]:
        """A start that is not finished in what is here."""
        up = {line.source for line in (self.ready, self.served) if line is not None}
        stages = [
            (source.stage, source.line)
            for name, source in self.sources.items()
            if source.line is not None and source.stage >= 0 and (not up or (source.front and source.stage < _READY))
        ]
        if not stages:
            return
        stage, line = min(stages, key=lambda pair: pair[0])
        name = ORDER[stage]
        if name in _FITS:
            yield Signal(
                "",
                Says.SYMPTOM,
                f"a start came to {name}, and no further in what is here",
                [line.evidence()] if line else [],
                {"stage": name},
                order=STANDING,
                candidates=_FITS[name],
            )

    def _versions(self) -> Iterator[Signal]:
        versions: dict[str, Line] = {}
        for source in self.sources.values():
            for version, line in source.versions.items():
                versions.setdefault(version, line)
        if len(versions) > 1 and len(self.sources) > 1:
            apart = any(self.sources[line.source].stage == _READY for line in versions.values())
            yield Signal(
                "version-mismatch",
                Says.HINT if apart else Says.NAMED,
                "vLLM " + " and ".join(sorted(versions)) + " run in one job",
                [line.evidence() for line in versions.values()],
                condition=True,
                order=min(line.order for line in versions.values()),
                remedy="install one vLLM version on all nodes",
            )

    def _addresses(self) -> Iterator[Signal]:
        """Ranks that were told different rendez-vous addresses."""
        urls: dict[str, Line] = {}
        for url, line in self.methods.values():
            if url.startswith("tcp://"):
                urls.setdefault(url, line)
        hosts = {url[6:].rpartition(":")[0] for url in urls}
        ports = {url.rpartition(":")[2] for url in urls}
        if len(hosts) == 1 and len(ports) > 1 and len({line.source for line in urls.values()}) > 1:
            yield Signal(
                "bootstrap-peer-unreachable",
                Says.STRONG,
                "the ranks are told different ports of the rendez-vous: " + ", ".join(sorted(urls)),
                [line.evidence() for line in urls.values()],
                order=min(line.order for line in urls.values()),
                remedy="the same --master-port on all nodes",
            )
        if len(hosts) > 1:
            yield Signal(
                "node-ip-wrong-interface",
                Says.STRONG,
                "the ranks are told different rendez-vous addresses: " + ", ".join(sorted(urls)),
                [line.evidence() for line in urls.values()],
                order=min(line.order for line in urls.values()),
                remedy="the same --master-addr on all nodes: the address of node 0 that all of them reach",
            )

    def slow(self, least: float = SLOW_LOAD_S) -> Signal | None:
        """A start that took long between two stages, or in one step that says so. `least`: seconds."""
        if self.longest is not None and self.longest[0] >= least:
            seconds, what, line = self.longest
            return _slow(f"{what} {seconds / 60:.0f} min; it went on by itself", line, self.ready is not None)
        if self.waited is not None and self.ready is not None:
            line, minutes = self.waited
            if least <= max(SLOW_LOAD_S, minutes * 60):
                return _slow(
                    f"the engine's message queue waited for {minutes} min during a long step; it went on by itself",
                    line,
                    ready=True,
                )
        for source in self.sources.values():
            clocks = [(name, source.clocks[name]) for name in ORDER if name in source.clocks]
            for (before, start), (after, end) in itertools.pairwise(clocks):
                took = (end - start) % 86400
                if least <= took < 6 * 3600 and source.line is not None and source.first is not None:
                    return Signal(
                        "slow-not-hung",
                        Says.STRONG,
                        f"{took / 60:.0f} min from {before} to {after}; it went on by itself",
                        [source.first.evidence(), source.line.evidence()],
                        {"stage": after},
                        condition=True,
                        order=source.line.order,
                    )
        return None

    def uneven(self) -> tuple[Line, Line] | None:
        """A node that still loads while another one has loaded: their last lines about it."""
        slow = [line for percent, line in self._bars.values() if percent < 100]
        fast = [line for percent, line in self._bars.values() if percent >= 100]
        return (slow[0], fast[0]) if slow and fast else None

    def preparing(self) -> tuple[int, float, Line] | None:
        """A bar of work before the common work that grew and has not come to its end: percent, seconds, line."""
        if self.bar is None or self.bar[2] < GREW or self.bar[0] >= 100:
            return None
        percent, line, _ = self.bar
        bar, lasted = _BAR.search(line.text), _ELAPSED.search(line.text)
        if bar is None or lasted is None or not _PREPARES.search(bar["what"]):
            return None
        return percent, _seconds(lasted), line

    def behind(self) -> tuple[Bar, Bar] | None:
        """Work of one process that grew and has not come to its end, while the same of another one has."""
        return next(((late, done) for late, done in self.bars.behind() if late.grew >= GREW), None)

    def moving(self) -> Signal | None:
        """A progress bar that grew and is the last that was heard."""
        if self.bar is None or self.bar[2] < 1 or self.bar[0] >= 100:
            return None
        percent, line, _ = self.bar
        return _slow(f"a progress bar stands at {percent}% and was growing when this ends", line)

    def reached(self) -> list[tuple[str, str, Line]]:
        """`(source, stage, line)` of each source that shows a start."""
        return [
            (name, ORDER[source.stage], source.line)
            for name, source in self.sources.items()
            if source.line is not None and source.stage >= 0
        ]
