"""How far a vLLM, SGLang or Ray start came, in which versions, with which rendez-vous; and whether it served."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line

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
)
"""Literal -> stage, in the order of a start. Source: vLLM 0.6.6 to 0.33, SGLang 0.4."""

ORDER = list(dict.fromkeys(stage for _, stage in MARKERS))
_VERSION = re.compile(r"(?:LLM engine|Launching vLLM|vLLM API server version|API server version) ?\(?v?(?P<version>\d+\.\d+\.\d+[\w.+-]*)\)?")
_INIT = re.compile(r"world_size=(?P<world>\d+) rank=(?P<rank>\d+) local_rank=(?P<local>\d+) distributed_init_method=(?P<url>\S+)")
_CLOCK = re.compile(r"(?<!\d)(\d\d):(\d\d):(\d\d)(?!\d)")
_SERVED = re.compile(r'" 200 OK|HTTP/1\.1" 200|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]|Successful requests: +[1-9]')
_READY = ORDER.index("ready")
SLOW_LOAD_S = 300.0


@dataclass
class _Source:
    stage: int = -1
    line: Line | None = None
    versions: dict[str, Line] = field(default_factory=dict)
    first: Line | None = None
    clocks: dict[str, float] = field(default_factory=dict)
    """Stage -> seconds of the day of its first marker."""


class Starts:
    """One engine start per source."""

    triggers = tuple(dict.fromkeys([literal for literal, _ in MARKERS] + ["200 OK", '1.1" 200', "generation throughput", "gen throughput", "Successful requests"]))

    def __init__(self) -> None:
        self.sources: dict[str, _Source] = {}
        self.methods: dict[int, tuple[str, Line]] = {}
        self.served: Line | None = None
        self.ready: Line | None = None

    def take(self, line: Line) -> bool:
        source = self.sources.setdefault(line.source, _Source())
        source.first = source.first or line
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
                break
        version = _VERSION.search(line.text)
        if version:
            source.versions.setdefault(version["version"], line)
        init = _INIT.search(line.text)
        if init:
            self.methods.setdefault(int(init["rank"]), (init["url"], line))
        if self.ready is not None and self.served is None and _SERVED.search(line.text):
            self.served = line
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        yield from self._versions()
        yield from self._addresses()

    def _versions(self) -> Iterator[Signal]:
        versions: dict[str, Line] = {}
        for source in self.sources.values():
            for version, line in source.versions.items():
                versions.setdefault(version, line)
        if len(versions) > 1 and len(self.sources) > 1:
            yield Signal("version-mismatch", Says.NAMED, "vLLM " + " and ".join(sorted(versions)) + " run in one job", [line.evidence() for line in versions.values()],
                         condition=True, order=min(line.order for line in versions.values()), remedy="install one vLLM version on all nodes")

    def _addresses(self) -> Iterator[Signal]:
        """Ranks that were told different rendez-vous addresses."""
        urls: dict[str, Line] = {}
        for url, line in self.methods.values():
            if url.startswith("tcp://"):
                urls.setdefault(url, line)
        hosts = {url[6:].rpartition(":")[0] for url in urls}
        if len(hosts) > 1:
            yield Signal("node-ip-wrong-interface", Says.STRONG, "the ranks are told different rendez-vous addresses: " + ", ".join(sorted(urls)),
                         [line.evidence() for line in urls.values()], order=min(line.order for line in urls.values()),
                         remedy="the same --master-addr on all nodes: the address of node 0 that all of them reach")

    def slow(self) -> Signal | None:
        """A start that took long between two stages, and came up."""
        for source in self.sources.values():
            clocks = [(name, source.clocks[name]) for name in ORDER if name in source.clocks]
            for (before, start), (after, end) in itertools.pairwise(clocks):
                took = (end - start) % 86400
                if SLOW_LOAD_S <= took < 6 * 3600 and source.line is not None and source.first is not None:
                    return Signal("slow-not-hung", Says.STRONG, f"{took / 60:.0f} min from {before} to {after}; it went on by itself", [source.first.evidence(), source.line.evidence()],
                                  {"stage": after}, condition=True, order=source.line.order)
        return None

    def reached(self) -> list[tuple[str, str, Line]]:
        """`(source, stage, line)` of each source that shows a start."""
        return [(name, ORDER[source.stage], source.line) for name, source in self.sources.items() if source.line is not None and source.stage >= 0]

