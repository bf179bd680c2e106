"""How far a vLLM, SGLang or Ray start came, in which versions, with which rendez-vous; and whether it served."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.alive import trains
from ncdiag.logs.model import STANDING, Line, speaker
from ncdiag.logs.starts.alike import CHECKPOINT, INIT, Alike
from ncdiag.logs.starts.markers import ENDED, FITS, LOADING, MARKERS, ORDER, WORKED
from ncdiag.logs.starts.progress import BAR, Progress, origin
from ncdiag.logs.starts.slow import slow_start

_VERSION = re.compile(
    r"(?:LLM engine|Launching vLLM|vLLM API server version|API server version) ?\(?v?(?P<version>\d+\.\d+\.\d+[\w.+-]*)\)?"
)
_CLOCK = re.compile(r"(?<!\d)(\d\d):(\d\d):(\d\d)(?!\d)")
_LASTED = re.compile(
    r"(?P<what>Loading weights took|Model loading took [\d.]+ Gi?B(?: memory)? and|torch\.compile takes|Compiling a graph for [\w (),]+? takes|Graph capturing finished in|init engine \([^)]*\) took|Initial profiling/warmup run took|Time spent downloading weights for \S+:) (?P<s>\d+(?:\.\d+)?) ?s"
)
_SERVED = re.compile(
    r'" 200 OK|HTTP/1\.1" 200|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]|Successful requests: +[1-9]'
)
_ANSWERED = re.compile(
    r'"POST [^"]*" 200|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]|Successful requests: +[1-9]'
)
_READY = ORDER.index("ready")
NO_BLOCK = "No available shared memory broadcast block found"
STARVED = 3  # such lines, one a minute, after which nothing else happened
SLOW_LOAD_S = 300.0


def _step(what: str) -> str:
    """`Loading weights took` -> `Loading weights`."""
    return re.sub(r" took .*", "", what) if " took " in what else what.rsplit(" ", 1)[0]


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
        self.served: Line | None = None
        self.ready: Line | None = None
        self.first_up: dict[str, float] = {}
        """Source -> order of the line with which a server came up first."""
        self.last_shown: dict[str, float] = {}
        """Source -> order of the last line that shows it at work."""
        self.answers = 0
        """How many answers to users are seen after the start."""
        self.worked: Line | None = None
        self.ray_up: dict[str, float] = {}
        """Source -> order of the last line with which `ray start` came up: the head was reached."""
        self.ended: dict[str, float] = {}
        """Source -> order of the line with which a server that had come up began to end."""
        self.longest: tuple[float, str, Line] | None = None
        """Seconds, what, line of the step that lasted longest."""
        self.progress = Progress()
        self.alike = Alike()
        self._starved: list[Line] = []
        self._stood: list[Line] = []
        """Such lines with which a source ends."""
        self.waited: tuple[Line, int] | None = None
        """The first of several such lines in a row that something else followed, and how many minutes they span."""

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
        self.progress.take(line)
        self.alike.take(line)
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
                    self.last_shown[line.source] = line.order
                    self.first_up.setdefault(line.source, line.order)
                break
        if any(word in line.text for word in WORKED):
            self.worked = line
            self.last_shown[line.source] = line.order
            if "Ray runtime started." in line.text:
                self.ray_up[line.source] = line.order
        if source.stage == _READY and line.source not in self.ended and any(word in line.text for word in ENDED):
            self.ended[line.source] = line.order
        version = _VERSION.search(line.text)
        if version:
            source.versions.setdefault(version["version"], line)
        self.answers += self.ready is not None and _ANSWERED.search(line.text) is not None
        if self.ready is not None and self.served is None and _SERVED.search(line.text):
            self.served = line
            self.last_shown[line.source] = line.order
        return False

    def routine(self, line: Line) -> bool:
        """What only shows that ranks worked together, or that a request was answered."""
        text = line.text
        details = (_LASTED, _VERSION, INIT, CHECKPOINT)
        return (
            not any(literal in text for literal, _ in MARKERS)
            and not any(word in text for word in (NO_BLOCK, "Ray runtime started.", *ENDED))
            and not any(pattern.search(text) for pattern in details)
            and (trains(text) or BAR.search(text) is None or origin(line) == line.source)
            and "rank" not in speaker(line.shown)
        )

    def end(self, source: str) -> None:
        if len(self._starved) >= STARVED:
            self._stood = self._starved
        self._starved = []

    def signals(self) -> Iterator[Signal]:
        yield from self._versions()
        yield from self.alike.addresses()
        yield from self.alike.checkpoints()
        if self._stood:
            yield Signal(
                "",
                Says.SYMPTOM,
                f"the engine's message queue has not moved for {len(self._stood)} min and nothing follows",
                [line.evidence() for line in self._stood[:2]],
                order=self._stood[0].order,
                candidates=("rank-stuck-outside-collective", "collective-desync", "slow-not-hung"),
            )
        if self.ready is None:
            yield from self.alike.late()
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
        if name in FITS:
            yield Signal(
                "",
                Says.SYMPTOM,
                f"a start came to {name}, and no further in what is here",
                [line.evidence()] if line else [],
                {"stage": name},
                order=STANDING,
                candidates=FITS[name],
            )

    def _versions(self) -> Iterator[Signal]:
        versions: dict[str, Line] = {}
        for source in self.sources.values():
            for version, line in source.versions.items():
                versions.setdefault(version, line)
        if len(versions) > 1 and len(self.sources) > 1:
            apart = all(self.sources[line.source].stage == _READY for line in versions.values())  # servers of two jobs
            yield Signal(
                "version-mismatch",
                Says.HINT if apart else Says.NAMED,
                "vLLM " + " and ".join(sorted(versions)) + " run in one job",
                [line.evidence() for line in versions.values()],
                condition=True,
                order=min(line.order for line in versions.values()),
                remedy="install one vLLM version on all nodes",
            )

    def slow(self, least: float = SLOW_LOAD_S) -> Signal | None:
        """A start that took long between two stages, or in one step that says so. `least`: seconds."""
        if self.longest is not None and self.longest[0] >= least:
            seconds, what, line = self.longest
            return slow_start(f"{what} {seconds / 60:.0f} min; it went on by itself", line, self.ready is not None)
        if self.waited is not None and self.ready is not None:
            line, minutes = self.waited
            if least <= max(SLOW_LOAD_S, minutes * 60):
                return slow_start(
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

    def reached(self) -> list[tuple[str, str, Line]]:
        """`(source, stage, line)` of each source that shows a start."""
        return [
            (name, ORDER[source.stage], source.line)
            for name, source in self.sources.items()
            if source.line is not None and source.stage >= 0
        ]
