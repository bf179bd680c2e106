"""What a run outlived: a message after which the same run goes on to print results cannot be what ended it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs import endings
from ncdiag.logs.model import SHELL, Line
from ncdiag.logs.steps import step

_LOSS = re.compile(r"(?:\b|_)[Ll]oss\b['\"]?\W{1,4}\d")
_STEP = re.compile(r"(?i)\b(?:steps?|iter\w*|epoch)\W{1,12}\d|\d/ *\d|\bit/s|s/it\b|'loss'|grad_norm")
_PROMPT = re.compile(
    r"(?:^|[$#%>] ?)(?:\w+=\S* |sudo |time |exec |env |nohup |nice |stdbuf -\S+ |timeout (?:-[ks] ?\S+ |-\S+ )*[\d.]+[smhd]? |numactl (?:-\S+ )+|taskset -c \S+ )*(?P<program>(?:mpirun|mpiexec|srun|torchrun|deepspeed|accelerate launch|vllm serve|ray start|docker run)(?![\w.:]| noticed)|python3? -m \S+|\S*_perf(?:_mpi)? -)"
)
_DEATH = re.compile(
    "|".join(
        (
            endings.LAUNCHER,
            endings.PROCESS,
            endings.ENGINE_CORE,
            r"Traceback \(most recent call last\)|^terminate called after|Test (?:NCCL|CUDA) failure|core dumped|^\^C|^Aborted|Segmentation fault|closing signal SIGTERM",
            "Watchdog caught collective operation timeout",
        )
    )
)
_OF = re.compile(r"(?<![\d/.])(\d{2,})\s*/\s*(\d{2,})(?![\d/])")
_FINISHED = re.compile(
    r"'train_runtime'|[Tt]raining (?:is )?(?:complete|finished|done)|`Trainer\.fit` stopped: `max_|[Ff]inished training"
)
_ACCOUNT = re.compile(
    r"^\s*\d[\d_.+a-z]*\s.*?\b(?P<state>COMPLETED|FAILED|TIMEOUT|CANCELLED|NODE_FAIL|OUT_OF_MEMORY|OUT_OF_ME\+|PREEMPTED)\b.*?\b(?P<code>\d+:\d+)\b"
)
KERNEL = re.compile(
    r"\bkernel:|^\[ *\d{1,8}\.\d{6}\]|^\[\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\]|\bNVRM:|mlx[45]_core"
)
"""A line of the kernel: pasted beside a run's own, it was not said in between."""
_ANSWER = re.compile(r'" 200 OK|generation throughput: (?!0\.0 )[\d.]+|gen throughput \(token/s\): [1-9]')
RUNS_LIMIT = 10_000  # of one source, besides launches
STEPS = 3  # of a training that show it at work
BANNER, SERVER = "vLLM API server version", "vLLM's API server"
"""What a server says when it begins."""


@dataclass
class Run:
    """One run in one source, as far as where one begins and ends can be seen."""

    start: float
    line: Line | None = None
    """Where it is launched, or says that it begins."""
    header: bool = False
    program: str = ""
    """What is launched, "" where no command line shows it."""
    died: bool = False
    steps: int = 0


@dataclass
class Life:
    """Where runs begin and end, and the steps of trainings."""

    triggers = (
        "$ ", "]# ", "# nThread", "# Avg bus", "mpirun", "mpiexec", "srun ", "torchrun", "deepspeed ", "accelerate launch", "vllm serve", "ray start", "python -m ", "python3 -m ", "docker run", "_perf ",
        "_perf_mpi ", "Traceback (most", "terminate called", "Test NCCL failure", "Test CUDA failure", "ChildFailedError", "MPI_ABORT", "noticed that process", "exited on signal",
        "Exited with exit code", "core dumped", "^C", "EngineCore failed", "EngineCore encountered", "Killed", "Aborted", "Segmentation fault", "closing signal SIGTERM", "Watchdog caught",
        "train_runtime", "raining complete", "raining is complete", "raining finished", "raining done", "inished training", "Trainer.fit` stopped", "COMPLETED", "FAILED ", "TIMEOUT ",
        '" 200 OK', "generation throughput", "gen throughput", BANNER,
        "loss ", "loss:", "loss=", "loss'", 'loss"', "Loss:", "Loss ",
    )  # fmt: skip
    runs: dict[str, list[Run]] = field(default_factory=dict)
    relaunched: dict[str, float] = field(default_factory=dict)
    """Source -> where what had died before is launched again, the last time."""
    interrupted: dict[str, Line] = field(default_factory=dict)
    """Source -> where somebody ended a run by hand, the last one."""
    stepped: Line | None = None
    """The last step of a training that had made some."""
    first_step: dict[str, float] = field(default_factory=dict)
    """Source -> order of the first step of a training."""
    last_shown: dict[str, float] = field(default_factory=dict)
    """Source -> order of the last step of a training that had made some, or of its end."""
    finished: Line | None = None
    """Where a training says that it came to its end, the last one."""
    _recent: dict[str, deque[float]] = field(default_factory=dict)
    """Source -> orders of its last steps or answers."""
    _again: dict[str, float] = field(default_factory=dict)
    """Source -> order of the last line at which a training counted from an earlier step again, or something died."""
    _number: dict[str, int] = field(default_factory=dict)
    _finished: dict[str, float] = field(default_factory=dict)
    """Source -> order of the line with which a training came to its end."""
    _filled: set[str] = field(default_factory=set)
    """Sources where only a progress bar came to its end: it may be that of one epoch."""
    _accounted: set[str] = field(default_factory=set)
    """States that the scheduler's accounting gives the job and its steps."""

    def take(self, line: Line) -> bool:
        runs = self.runs.setdefault(line.source, [Run(-1.0)])
        text = line.text
        if trains(text):
            self._count(line)
            self.first_step.setdefault(line.source, line.order)
            runs[-1].steps += 1
            of = _OF.search(text)
            self._finished.pop(line.source, None)
            if of and of[1] == of[2]:
                self._finished[line.source] = line.order
                (self._filled.add if "%|" in text else self._filled.discard)(line.source)
            if runs[-1].steps >= STEPS:
                self.stepped = line
                self.last_shown[line.source] = line.order
        elif _ANSWER.search(text):
            self._recent.setdefault(line.source, deque(maxlen=STEPS)).append(line.order)
        elif _FINISHED.search(text):
            self._finished[line.source] = line.order
            self._filled.discard(line.source)
            self.finished = line
            self.last_shown[line.source] = line.order
        elif account := _ACCOUNT.match(text):
            self._accounted.add(f"{account['state']} {account['code']}")
        elif text.startswith("# Avg bus bandwidth"):
            runs.append(Run(line.order + 0.5))
        elif text.startswith("# nThread"):
            if runs[-1].header:
                runs.append(Run(line.order))
            runs[-1].header = True
            runs[-1].line = runs[-1].line or line
        elif _DEATH.search(text):
            runs[-1].died = True
            if text.startswith("^C"):
                self.interrupted[line.source] = line
            if "Traceback" not in text:
                self._again[line.source] = line.order
            if len(runs) < RUNS_LIMIT:
                runs.append(Run(line.order))
        elif program := SERVER if BANNER in text else _launched(text):
            self._launch(runs, line, program)
        elif SHELL.match(text):
            runs.append(Run(line.order))
        return False

    def _launch(self, runs: list[Run], line: Line, program: str) -> None:
        """A run begins; a server that says so once more without a death before it is another one of the same run."""
        before = next((index for index, run in enumerate(runs) if run.program == program), None)
        died = before is not None and any(run.died for run in runs[before:])
        if died:
            self.relaunched[line.source] = line.order
        if program != SERVER or before is None or died:
            runs.append(Run(line.order, line, program=program))

    def routine(self, line: Line) -> bool:
        return trains(line.text) or _ANSWER.search(line.text) is not None

    def _count(self, line: Line) -> None:
        number = step(line.text)
        if number is not None:
            if number < self._number.get(line.source, 0):
                self._again[line.source] = line.order
            self._number[line.source] = number
        self._recent.setdefault(line.source, deque(maxlen=STEPS)).append(line.order)

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        yield from ()

    def went_on(self, source: str, order: float) -> bool:
        """Whether several steps or answers follow a place of a source, with no death and no second start after it: an exception there was caught."""
        recent = self._recent.get(source)
        return recent is not None and len(recent) >= STEPS and recent[0] > order > self._again.get(source, -1.0)

    def ended(self, source: str) -> bool:
        """Whether a training says there that it came to its end, or the scheduler that the job did."""
        finished = self._finished.keys() - self._filled
        elsewhere = self.finished is not None and self.finished.source in finished
        return source in finished or elsewhere or "COMPLETED 0:0" in self._accounted

    def same_run(self, source: str, one: float, other: float) -> bool:
        """Whether no run begins or ends between two places of a source."""
        starts = [run.start for run in self.runs.get(source, ())]
        return bisect_right(starts, one) == bisect_right(starts, other)

    def over(self, signal: Signal) -> bool:
        """Whether it only says that connections were closed, after the run had come to its end: processes never end all at once."""
        source = signal.evidence[0].source if signal.evidence else ""
        end = self._finished.get(source)
        if end is None and self._accounted == {"COMPLETED 0:0"} and self.stepped and self.stepped.source == source:
            end = self.stepped.order
        closed = signal.says <= Says.SYMPTOM and {"rank-died", "bootstrap-peer-unreachable"} <= set(signal.candidates)
        closed = closed or (signal.says is Says.HINT and signal.cause == "rank-died")
        return end is not None and signal.order > end and closed


def trains(text: str) -> bool:
    """Whether a line is a step of a training that says its loss."""
    return _LOSS.search(text) is not None and _STEP.search(text) is not None


def _launched(text: str) -> str:
    """The program that a command line starts, at the beginning of the line or behind a shell's prompt."""
    at = max(text.rfind("$ ", 0, 120), text.rfind("# ", 0, 120))
    match = _PROMPT.match(text) or (_PROMPT.match(text[at + 2 :]) if at >= 0 else None)
    return match["program"] if match else ""


def _quiet_after(proof: Line, signals: Iterable[Signal]) -> bool:
    """Whether a source says nothing bad after it showed that the job works."""
    return not any(signal.order > proof.order and signal.evidence[0].source == proof.source for signal in signals)


def outlived(said: Iterable[Signal], life: Life, proofs: Sequence[Line]) -> None:
    """Messages of single lines after which the same run shows that it works become conditions of which little is claimed; where trouble follows, they stay what may have ended it, but are not sure."""
    signals = [
        signal
        for signal in said
        if (not signal.condition or signal.cause == "version-mismatch") and signal.evidence and not life.over(signal)
    ]
    survived: set[str] = set()
    for signal in signals:
        source = signal.evidence[0].source
        if KERNEL.search(signal.evidence[0].text):
            continue
        after = [
            line
            for line in proofs
            if line.source == source
            and line.order > max(signal.order, signal.until)
            and life.same_run(source, signal.order, line.order)
        ]
        if not after:
            if any(line.source != source and _quiet_after(line, signals) for line in proofs):
                signal.doubted = True  # which was first, files do not tell
            continue
        last = max(line.order for line in after)
        if any(other.order > last and other.evidence[0].source == source for other in signals):
            signal.says = min(signal.says, Says.STRONG)
        else:
            harmless(signal)
            survived.add(signal.summary)
    for signal in [other for other in signals if not other.condition and other.summary in survived]:
        own = any(line.source == signal.evidence[0].source for line in proofs)
        if not own and any(_quiet_after(line, signals) for line in proofs):
            harmless(signal)  # another process said the same, and the job works


def harmless(signal: Signal) -> None:
    signal.says = Says.HINT if signal.says >= Says.HINT else Says.CASCADE
    signal.condition = True
