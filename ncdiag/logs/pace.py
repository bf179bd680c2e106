"""How fast a training goes in one run and in another: a job that works and is slower than it was, with no word of why.

Sources: step lines of torchtitan, Megatron-LM, NeMo, DeepSpeed and transformers' trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.steps import step

_RATE = re.compile(
    r"(?i)\b(?P<name>tokens/s(?:ec)?(?:/gpu)?|tok/s|tps|samples[/ ](?:per )?s(?:ec(?:ond)?)?|tflops?/?s?(?:/gpu)?)\W{1,4}(?P<n>\d[\d,]{0,12}(?:\.\d{1,6})?)"
)
_TIME = re.compile(
    r"(?i)\b(?P<name>step[_ ]time(?:_s)?|elapsed time per iteration \(ms\)|iter(?:ation)?[_ ]time(?:_s| \(m?s\))?|sec/step|s/step)\W{1,4}(?P<n>\d{1,9}(?:\.\d{1,6})?)"
)
SLOWER = 1.6  # times, from which on a run is another one's slow twin
RUNS_LIMIT = 64


@dataclass
class _Run:
    """Its first step, and the pace of its last one: of many steps in a row no more may be read."""

    first: int
    last: int
    pace: float
    line: Line


class Pace:
    """Steps of each run by metric. A run begins where the count of steps goes back, or with its source."""

    triggers = ("tokens/s", "tok/s", " tps", "samples/s", "samples per s", "step_time", "step time", "elapsed time per iteration", "TFLOP", "tflops", "iteration time", "iter_time")  # fmt: skip

    def __init__(self) -> None:
        self._runs: dict[str, list[_Run]] = {}
        """Metric -> runs."""
        self._open: dict[tuple[str, str], _Run] = {}

    def take(self, line: Line) -> bool:
        number, rate, time = step(line.text), _RATE.search(line.text), _TIME.search(line.text)
        found = rate or time
        if number is None or found is None:
            return False
        value = float(found["n"].replace(",", ""))
        if value <= 0:
            return False
        name = found["name"].lower()
        pace = value if rate else 1 / value
        run = self._open.get((line.source, name))
        if run is None or number < run.last:
            run = _Run(number, number, pace, line)
            runs = self._runs.setdefault(name, [])
            if len(runs) >= RUNS_LIMIT:
                return False
            runs.append(run)
            self._open[(line.source, name)] = run
        run.last, run.pace, run.line = number, pace, line
        return False

    def routine(self, line: Line) -> bool:
        """Steps, and what is none of its lines (a server's throughput): of a row the ends say all."""
        return True

    def end(self, source: str) -> None:
        self._open = {key: run for key, run in self._open.items() if key[0] != source}

    def signals(self) -> Iterator[Signal]:
        for name, runs in self._runs.items():
            paces = [run for run in runs if run.last > run.first]
            if len(paces) < 2:
                continue
            fast, slow = max(paces, key=lambda run: run.pace), min(paces, key=lambda run: run.pace)
            if fast.pace < SLOWER * slow.pace or fast.last < slow.first or slow.last < fast.first:
                continue
            lines = [fast.line, slow.line]
            yield Signal(
                "",
                Says.SYMPTOM,
                f"the same steps go {fast.pace / slow.pace:.1f} times as fast in one run as in another ({name}); what differs is not in these lines",
                [line.evidence() for line in lines],
                order=max(line.order for line in lines) + 0.5,
                candidates=(
                    "net-fallback-slow",
                    "gpu-throttled",
                    "ib-link-or-hca-fault",
                    "pcie-degraded",
                    "storage-slow",
                ),
            )
            return
