"""What sets a bad node apart, from one run of it (first half of the ranks) with a good partner (second half)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncdiag.bandwidth.job import Outcome, RankOutcome

LOSS = 0.005
"""Share of TCP segments sent again, of messages that fill no queue, from which on a link loses packets."""
LEAST_LOST = 3
SLOW_CPU, SLOW_CPU_STOPPED = 2.5, 1.3
"""How much longer than its partner a node takes for the same work; the second where its CPU quota was seen to stop it."""
ONE_SIDED = 0.6
"""One direction over the other, below which only that direction is slow."""


@dataclass
class Symptoms:
    """Facts of one node beside its partner. Bandwidths in GB/s."""

    stuck: bool = False
    stage: str = ""
    error: str = ""
    out_gbytes_s: float | None = None
    in_gbytes_s: float | None = None
    idle_loss_out: float | None = None
    """Share of its own segments that it sent again while hardly anything was sent."""
    idle_loss_in: float | None = None
    """The same of its partner's segments, which come in here."""
    cpu_ratio: float | None = None
    """Time for the same CPU work over the partner's."""
    throttled: bool = False
    """The CPU quota of its cgroup stopped it meanwhile."""
    cpu_slow: bool = False
    """It was slow beside all others, not only beside this partner."""
    memory_gbytes_s: float | None = None
    bf16_tflops: float | None = None
    counters: dict[str, int] | None = None
    """RDMA error counters that rose."""

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, "", False, {})}

    @property
    def kind(self) -> str:
        """`dead`, `cpu`, `lossy`, `rdma-errors`, `throttled-out`, `throttled-in`, `slow`."""
        if self.stuck:
            return "dead"
        if self.cpu_slow or (
            self.cpu_ratio is not None and self.cpu_ratio >= (SLOW_CPU_STOPPED if self.throttled else SLOW_CPU)
        ):
            return "cpu"
        if max(self.idle_loss_out or 0.0, self.idle_loss_in or 0.0) >= LOSS:
            return "lossy"
        if any((self.counters or {}).values()):
            return "rdma-errors"
        if self.out_gbytes_s and self.in_gbytes_s:
            if self.out_gbytes_s < ONE_SIDED * self.in_gbytes_s:
                return "throttled-out"
            if self.in_gbytes_s < ONE_SIDED * self.out_gbytes_s:
                return "throttled-in"
        return "slow"


def symptoms(outcome: Outcome, idle_bytes: int) -> Symptoms:
    """`outcome` of `all_reduce`, `forward` and `backward` with the self test."""
    half = len(outcome.ranks) // 2
    own, partner = outcome.ranks[:half], outcome.ranks[half:]
    if not outcome.ok:
        worst = next((rank for rank in outcome.ranks if rank.error), outcome.ranks[0])
        return Symptoms(stuck=True, stage=worst.stage, error=worst.error)
    found = Symptoms(
        out_gbytes_s=_bandwidth(partner, "forward"),
        in_gbytes_s=_bandwidth(own, "backward"),
        idle_loss_out=idle_loss(own, idle_bytes),
        idle_loss_in=idle_loss(partner, idle_bytes),
    )
    mine, theirs = own[0].self_test, partner[0].self_test
    if mine and theirs:
        found.cpu_ratio = mine["cpu_work_s"] / theirs["cpu_work_s"]
        found.throttled = bool(mine.get("throttled"))
        found.memory_gbytes_s, found.bf16_tflops = mine.get("memory_gbytes_s"), mine.get("bf16_tflops")
    found.counters = {name: value for rank in own[:1] for name, value in (rank.counters or {}).items() if value > 0}
    return found


def _bandwidth(receivers: Sequence[RankOutcome], op: str) -> float | None:
    """All ranks' receiving, together, at the greatest size."""
    total = 0.0
    for rank in receivers:
        rows = [row for row in rank.rows if row["op"] == op]
        if not rows:
            return None
        row = max(rows, key=lambda row: row["size"])
        total += row["size"] / row["mean_s"] / 1e9
    return total


def idle_loss(senders: Sequence[RankOutcome], idle_bytes: int) -> float | None:
    """Share of the TCP segments of small messages that these ranks sent again; None: too few were sent to say."""
    rows = [row["tcp"] for rank in senders for row in rank.rows if row["size"] <= idle_bytes]
    sent, again = sum(row["segments"] for row in rows), sum(row["retransmitted"] for row in rows)
    if sent < 100:
        return None
    return again / sent if again >= LEAST_LOST else 0.0
