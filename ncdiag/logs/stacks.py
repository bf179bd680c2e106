"""py-spy dumps, text and JSON: which rank stands outside the collective that the others wait in.

Source: `py-spy dump` and `py-spy dump --json` of 0.3 and 0.4; several dumps may follow each other, with headings between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import STANDING, Line
from ncdiag.model import Evidence, Frame
from ncdiag.nodeset import counted
from ncdiag.stages import ON_OTHERS, WAITING, StageMatch, describe, stage, stage_of_threads
from ncdiag.stages.order import DNS, ENGINE, ORDERS, WORKERS

_THREAD = re.compile(r"^\s*Thread (?P<id>0x[0-9A-Fa-f]+|\d+)(?: \((?P<state>[\w+]+)\))?:? ?\"?(?P<name>[^\"]*)\"?\s*$")
_FRAME = re.compile(r"^\s{2,}(?P<name>\S.*?) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)\s*$")
_PROCESS = re.compile(r"^Process (?P<pid>\d+): (?P<title>.*)$")
_DETAIL = re.compile(r"^\s{8,}")

_IDLE = (ORDERS, WORKERS, ENGINE)
_FITS = {
    "rendezvous": ("rank-missing", "bootstrap-blocked-firewall", "node-ip-wrong-interface"),
    "mesh": ("socket-ifname-wrong", "bootstrap-blocked-firewall", "rank-missing"),
    "groups": ("bootstrap-blocked-firewall", "rank-missing", "parallel-size-mismatch"),
    "nccl-init": ("socket-ifname-wrong", "rank-missing", "bootstrap-blocked-firewall"),
    "message-queues": ("node-ip-wrong-interface", "bootstrap-blocked-firewall", "rank-stuck-outside-collective"),
    "ray-placement": ("ray-resources-infeasible", "ray-placement-group-leaked", "ray-gcs-unreachable"),
}
"""Stage in which every rank waits -> what that usually is."""
_ELSE = ("rank-stuck-outside-collective", "collective-desync", "bootstrap-blocked-firewall")
_IDLES = re.compile(
    r"^(?:__?)?(?:sched_yield|pthread_yield|nanosleep|clock_nanosleep|usleep|pthread_mutex_lock|lll_lock_wait)"
)
_LAUNCH = re.compile(
    r"^(?:nccl\w*(?:Launch|Enqueue|Group|Fifo)\w*|doLaunches|groupLaunch|waitWorkFifoAvailable|uploadWork\w*)$"
)
_LOCK_FILES = re.compile(r"torch/utils/file_baton\.py|filelock/")
_LOCK_LEFT = "it waits for a lock file: where no process builds or downloads (ps), a dead one left it; remove the file `lock` in the folder of the extension (TORCH_EXTENSIONS_DIR, ~/.cache/torch_extensions) or cache on that node, and build once before the launch"
LIMIT = 20_000  # stacks kept


@dataclass
class Stack:
    thread: str
    name: str
    heading: str
    """The line that named node or process before it."""
    line: Line
    frames: list[Frame] = field(default_factory=list)
    pid: int | None = None
    title: str = ""
    twins: list[str] = field(default_factory=list)
    """Threads printed with the same stack."""

    @property
    def main(self) -> bool:
        return "MainThread" in self.name or not self.name


class Stacks:
    """Threads and frames of all dumps."""

    triggers = ("Thread ", "Process ")

    def __init__(self) -> None:
        self.found: list[Stack] = []
        self._heading = ""
        self._process: tuple[int | None, str] = (None, "")
        self._current: Stack | None = None
        self._waiting: list[Stack] = []
        self._blank = 0

    def take(self, line: Line) -> bool:
        text = line.text.rstrip()
        process, thread = _PROCESS.match(text), _THREAD.match(text)
        if process:
            self._process = (int(process["pid"]), process["title"][:200])
        elif thread and (thread["state"] or thread["name"]):
            if self._current is not None and not self._current.frames:
                self._waiting.append(self._current)
            elif self._current is not None:
                self._waiting = []
            pid, title = self._process
            self._current = Stack(thread["id"], thread["name"], self._heading, line, pid=pid, title=title)
            if len(self.found) < LIMIT:
                self.found.append(self._current)
        elif (
            self._current is not None
            and (frame := _FRAME.match(text))
            and not (_DETAIL.match(text) and self._current.frames and text.strip().endswith(":"))
        ):
            self._current.frames.append(Frame(frame["name"], frame["file"], int(frame["line"] or 0)))
            for twin in self._waiting:
                twin.frames = self._current.frames
        elif text and not text.startswith((" ", "\t")):
            self._heading = text.strip().rstrip(":")[:80]
            self._blank += 1
            return self._blank < 40
        self._blank = 0 if text.startswith((" ", "\t")) else self._blank
        return True

    def end(self, source: str) -> None:
        self._heading, self._process, self._current, self._waiting, self._blank = "", (None, ""), None, [], 0

    def ranks(self) -> list[Stack]:
        """Main threads that have frames: one a rank, mostly."""
        return [stack for stack in self.found if stack.main and stack.frames]

    def signals(self) -> Iterator[Signal]:
        matches = _matches(self.ranks())
        matches = [(stack, match) for stack, match in matches if match.stage != "ready" and match.waiting not in _IDLE]
        waiting = [
            (stack, match) for stack, match in matches if match.waiting in ON_OTHERS or match.stage == "collective"
        ]
        outside = [(stack, match) for stack, match in matches if (stack, match) not in waiting]
        if waiting and not outside:
            match = waiting[0][1]
            spins = [_launching(stack) for stack, _ in waiting]
            if len(spins) > 1 and all(spins):
                yield Signal(
                    "",
                    Says.SYMPTOM,
                    f"every rank is on its processor inside NCCL's own launch of a kernel ({spins[0]}), not waiting for a peer",
                    [_evidence(stack) for stack, _ in waiting[:3]],
                    {"stage": match.stage},
                    order=STANDING - 2,
                    candidates=("framework-version-bug", "collective-desync"),
                )
            yield Signal(
                "",
                Says.SYMPTOM,
                f"every rank in these stacks waits for another one (first: {describe(match.stage)})",
                [_evidence(stack) for stack, _ in waiting[:3]],
                {"stage": match.stage},
                order=STANDING - 1,
                candidates=_FITS.get(match.stage, _ELSE),
            )
        elif outside and len(outside) <= max(len(waiting), 1):
            yield from self._outside(outside, waiting)
        elif outside and not waiting and all(_works(stack, match) for stack, match in outside):
            first, match = outside[0]
            yield Signal(
                "slow-not-hung",
                Says.HINT,
                f"nobody in these stacks waits for another rank: {first.thread} and {len(outside) - 1} more work (first: it {describe(match.stage)})",
                [_evidence(stack) for stack, _ in outside[:3]],
                {"stage": match.stage},
                condition=True,
                order=first.line.order,
            )

    def _outside(
        self, outside: list[tuple[Stack, StageMatch]], waiting: list[tuple[Stack, StageMatch]]
    ) -> Iterator[Signal]:
        first, match = outside[0]
        evidence = [_evidence(stack) for stack, _ in [*outside[:3], *waiting[:3]]]
        node = {"node": first.heading} if re.match(r"(?i)node\b|host\b", first.heading) else {}
        where = {
            **node,
            "pid": first.pid or (int(first.thread) if first.thread.isdecimal() else None),
            "stage": match.stage,
        }
        frame = first.frames[0]
        if match.waiting == DNS:
            yield Signal(
                "dns-unresponsive",
                Says.STRONG if waiting else Says.HINT,
                f"{first.thread} looks a name up ({frame.name}, {frame.file})"
                + (
                    f" while {counted(len(waiting), 'other')} wait{'s' if len(waiting) == 1 else ''} for it"
                    if waiting
                    else "; whether it gets an answer is not in here"
                ),
                evidence,
                where,
                condition=not waiting,
                order=first.line.order,
                candidates=("rank-stuck-outside-collective",),
            )
        elif match.stage in ("load-weights", "download"):
            if waiting:
                yield Signal(
                    "storage-slow",
                    Says.HINT,
                    f"{first.thread} still loads weights ({frame.name}) while the others wait: slow or stuck, its bytes read tell",
                    evidence,
                    where,
                    order=first.line.order,
                )
                yield Signal(
                    "slow-load-peer-timeout",
                    Says.HINT,
                    f"{first.thread} still loads weights while the others wait for it",
                    evidence,
                    where,
                    order=first.line.order + 0.5,
                )
        elif _works(first, match):
            yield Signal(
                "slow-not-hung",
                Says.HINT,
                f"{first.thread} {describe(match.stage)}, which may take long",
                evidence,
                where,
                condition=True,
                order=first.line.order,
            )
        elif waiting:
            threads = list(dict.fromkeys(stack.thread for stack, _ in outside))
            names, stand = ", ".join(threads[:4]), "stands" if len(threads) == 1 else "stand"
            yield Signal(
                "rank-stuck-outside-collective",
                Says.STRONG,
                f"{names} {stand} in {frame.name} ({frame.file}) while {counted(len(waiting), 'other')} wait{'s' if len(waiting) == 1 else ''} in collectives",
                evidence,
                where,
                order=first.line.order,
                remedy=_LOCK_LEFT if _locked(first) else "",
            )
        elif match.waiting is not None:
            yield Signal(
                "rank-stuck-outside-collective",
                Says.HINT,
                f"{first.thread} waits for {WAITING[match.waiting]} in {frame.name} ({frame.file}); whether others wait for it is not in here",
                evidence,
                where,
                condition=True,
                order=first.line.order,
            )


def _works(stack: Stack, match: StageMatch) -> bool:
    """Whether it is in a stage that takes its time by itself."""
    return match.stage != "unknown" and stage(match.stage).works and not _locked(stack)


def _matches(stacks: Sequence[Stack]) -> list[tuple[Stack, StageMatch]]:
    """Each with its stage. Most ranks stand in the same functions, and lines do not matter."""
    known: dict[tuple[tuple[str, str], ...], StageMatch] = {}
    found = []
    for stack in stacks:
        key = tuple([(frame.name, frame.file) for frame in stack.frames])
        if key not in known:
            known[key] = stage_of_threads([{"name": "MainThread", "main": True, "frames": stack.frames}])
        found.append((stack, known[key]))
    return found


def _launching(stack: Stack) -> str:
    """The function of NCCL's host code that a native stack stands in; "" where it waits elsewhere."""
    top = next((frame for frame in stack.frames if not _IDLES.match(frame.name)), None)
    return (
        f"{top.name}, {top.file}"
        if top is not None and _LAUNCH.match(top.name) and top.file.endswith((".cc", ".cu", ".h"))
        else ""
    )


def _locked(stack: Stack) -> bool:
    """Whether it waits for a lock file, which a dead process may have left."""
    return any(_LOCK_FILES.search(frame.file) for frame in stack.frames[:6])


def _evidence(stack: Stack) -> Evidence:
    return Evidence(stack.line.source, _short(stack), stack.line.number)


def _short(stack: Stack) -> str:
    return f"Thread {stack.thread}: " + " < ".join(
        f"{frame.name} ({frame.file}:{frame.line})" for frame in stack.frames[:4]
    )
