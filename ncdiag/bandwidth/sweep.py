"""A sweep over operations and sizes: what is asked of the ranks, and what their answers add up to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncdiag.bandwidth.job import Job, Outcome, Place

LARGE_BYTES = 8 << 20
"""From this size on a bandwidth, and not a latency, is what is measured."""
OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}
NCCL_INIT_LOG = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,NET,GRAPH,P2P,SHM",
    "NCCL_DEBUG_FILE": None,
}


def bus_factor(op: str, ranks: int) -> float:
    """busbw / algbw, as nccl-tests defines it (doc/PERFORMANCE.md there)."""
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def sizes(least: int, most: int, factor: int) -> list[int]:
    """Geometric, both ends included where the factor leads there. `least` is 1 byte or more, `factor` 2 or more."""
    if least < 1:
        raise ValueError(f"no sizes from {least} bytes on")
    found = []
    size = least
    while size <= most:
        found.append(size)
        size *= factor
    return found


@dataclass(frozen=True)
class Row:
    """One operation at one size over all ranks. Times in seconds, bandwidths in GB/s (10^9 bytes)."""

    op: str
    size_bytes: int
    count: int
    dtype: str
    in_place: bool
    ranks: int
    time_s: float
    """Mean over iterations and ranks, as nccl-tests' default prints it."""
    half_width_s: float | None
    """Half of the 95 % confidence interval of the mean, of the rank where it is widest; None: one batch only."""
    min_s: float
    median_s: float
    p99_s: float
    rank_spread: float
    """(slowest rank's mean - fastest rank's mean) / mean."""
    slowest_rank: int
    samples: int
    wrong: int | None
    """Wrong elements over all ranks; None when not checked."""
    segments: int = 0
    retransmitted: int = 0
    """TCP segments on the ranks' own connections that leave their machine."""
    graph: bool = False
    """Whether it was launched in CUDA graphs; a sample is then the mean of the operations of one graph."""

    @property
    def algbw(self) -> float:
        return self.size_bytes / self.time_s / 1e9 if self.time_s > 0 else 0.0

    @property
    def busbw(self) -> float:
        return self.algbw * bus_factor(self.op, self.ranks)

    def as_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["algbw_gbytes_s"], data["busbw_gbytes_s"] = self.algbw, self.busbw
        width = self.half_width_s
        data["busbw_half_width_gbytes_s"] = (
            self.busbw * width / self.time_s if width is not None and self.time_s else None
        )
        return data


def rows(outcome: Outcome) -> list[Row]:
    """The rows that every rank has answered."""
    ranks = len(outcome.ranks)
    by_case: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
    for rank in outcome.ranks:
        for row in rank.rows:
            by_case.setdefault((row["op"], row["size"], row["in_place"]), []).append(row)
    return [_row(key, parts, outcome.job.settings["dtype"]) for key, parts in by_case.items() if len(parts) == ranks]


def _row(key: tuple[str, int, bool], parts: Sequence[dict[str, Any]], dtype: str) -> Row:
    means = [part["mean_s"] for part in parts]
    if key[0] in ("forward", "backward"):
        means = [max(means)] * len(means)  # a sender is done when its buffer is free; the receiver knows
    widths = [part["half_width_s"] for part in parts]
    mean = statistics.fmean(means)
    wrong = [part["wrong"] for part in parts]
    return Row(
        *key[:2],
        parts[0]["count"],
        dtype,
        key[2],
        len(parts),
        mean,
        max(widths) if None not in widths else None,
        min(part["min_s"] for part in parts),
        statistics.median(part["median_s"] for part in parts),
        max(part["p99_s"] for part in parts),
        (max(means) - min(means)) / mean if mean else 0.0,
        means.index(max(means)),
        parts[0]["samples"],
        sum(wrong) if None not in wrong else None,
        sum(part["tcp"]["segments"] for part in parts),
        sum(part["tcp"]["retransmitted"] for part in parts),
        parts[0]["graph"],
    )


def peak(found: Iterable[Row], op: str = "all_reduce") -> Row | None:
    """The row with the highest busbw of an operation, in place before out of place where they are equal."""
    chosen = [row for row in found if row.op == op]
    return max(chosen, key=lambda row: row.busbw, default=None)


@dataclass(frozen=True)
class Effort:
    """How thoroughly is measured."""

    warmup: int = 5
    precision: float = 0.01
    """Half of the 95 % confidence interval over the mean at which a size is done."""
    budget_s: float = 2.0
    """Time one size may take, warm-up and check apart."""
    check: bool = True


def job(
    places: Sequence[Place],
    backend: str,
    ops: Sequence[str],
    wanted: Sequence[int],
    dtype: str,
    effort: Effort,
    env: dict[str, str | None] | None = None,
    limit_s: float | None = None,
    itself: str = "",
) -> Job:
    """A job with a limit that a healthy group keeps with ease. `itself`: also test the machine, its `cpu` or `all` of it."""
    cases = len(ops) * len(wanted)
    settings = {
        "backend": backend,
        "ops": list(ops),
        "sizes": list(wanted),
        "dtype": dtype,
        "self": itself,
        **asdict(effort),
    }
    nccl = backend == "nccl"
    given = {**(NCCL_INIT_LOG if nccl else {}), **(env or {})}
    return Job(list(places), settings, given, limit_s or 120 + cases * (8 * effort.budget_s + 10), topology=nccl)
