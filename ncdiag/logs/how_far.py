"""What shows that a job works, and how far that carries: a log that only ends says neither that the job went on, nor that it stands still since.

Sure of itself is what came to its end (an average bandwidth, a finished training), and a server that came up: it has no end. Steps, rows of a benchmark
and what is printed once during a start only show that it worked up to there.
"""

from __future__ import annotations

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.logs.readers import Readers

COMPLETE = (
    "Benchmark duration (s)",
    "Output token throughput",
    "Training complete",
    "'train_runtime': ",
    "All ranks passed",
    "sanity check is successful",
)
"""Of `vllm.WORKED`, what is printed at the end of the work."""
CUT = "whether it went on, ended or stands still since, is not in what was given"
INITIALISED = (
    f"every communicator that is seen here is initialised, and no error follows; {CUT}: the first collective may hang"
)


def proof(readers: Readers) -> Line | None:
    """The line that shows a job at work, the one that says most."""
    starts, life = readers.starts, readers.life
    return readers.bench.worked or starts.served or life.stepped or life.finished or starts.ready or starts.worked


def healthy(line: Line, readers: Readers) -> Signal:
    """What such a line carries."""
    says, summary = _carried(line, readers)
    return Signal("healthy", says, summary, [line.evidence()], condition=True, order=line.order)


def _carried(line: Line, readers: Readers) -> tuple[Says, str]:
    starts, bench = readers.starts, readers.bench
    if line is bench.worked:
        if bench.average is not None and line is bench.average[1]:
            return Says.STRONG, "it came up and worked"
        return Says.HINT, f"it measures up to here; {CUT}"
    if line is starts.served or line is readers.life.finished:
        return Says.STRONG, "it came up and worked"
    if readers.life.ended(line.source) or any(word in line.text for word in COMPLETE):
        return Says.STRONG, "it came up and worked"
    if line is readers.life.stepped:
        return Says.HINT, f"it trains up to here; {CUT}"
    if line is starts.ready:
        return Says.STRONG, "it came up"
    return Says.HINT, f"it works up to here; {CUT}"
