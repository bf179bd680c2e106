"""The nodes' clocks agree.

Clocks that differ by seconds make the order of log lines lie, leases and certificates of Ray and Kubernetes expire early, and one
node an hour off looks like a network fault. Each node tells its time while the fleet reaches it; the true offset lies between the
moment it was called and the moment its answer came, so every offset has its own bound, and only what lies outside of it counts.

Source: `meta.clock` of each node, measured by the fleet (over SSH the bound is half the time that the connection took).
"""

from __future__ import annotations

from statistics import median
from typing import Dict, Iterator, NamedTuple

from ncdiag.model import Finding, Probe, Snapshot, ok, skip, unknown, warn

MAX_OFFSET_S = 1.0
"""Offset, beyond the bound of its measurement, from which logs of two nodes can no longer be laid side by side."""

CLOSE_S = 5.0
"""A bound wider than this says nothing."""

SOURCE = "clock of each node, told while the fleet reached it"


class Measured(NamedTuple):
    offset_s: float
    """How far the node is ahead of the machine that asked."""
    error_s: float


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    measured = {
        name: Measured(node.meta["clock"]["offset_s"], node.meta["clock"]["error_s"])
        for name, node in snapshot.nodes.items()
        if node.meta.get("clock")
    }
    close = {name: one for name, one in measured.items() if one.error_s <= CLOSE_S}
    for name, one in measured.items():
        if name not in close:
            yield unknown(
                "its clock could be measured to +-%.1f s only: the way there took too long" % one.error_s,
                name,
                source=SOURCE,
            )
    if len(close) < 2:
        yield skip("fewer than two clocks were measured: nothing to compare", source=SOURCE)
    elif len(close) == 2:
        yield from _two(close)
    else:
        yield from _many(close)


def _two(close: Dict[str, Measured]) -> Iterator[Finding]:
    (first, one), (second, other) = close.items()
    apart, error = one.offset_s - other.offset_s, one.error_s + other.error_s
    if abs(apart) - error <= MAX_OFFSET_S:
        yield _agree(close, abs(apart), error)
        return
    ahead, behind = (first, second) if apart > 0 else (second, first)
    yield warn("the clock of %s is %.1f s ahead of that of %s (+-%.1f s)" % (ahead, abs(apart), behind, error), source=SOURCE,
               observed={name: value.offset_s for name, value in close.items()}, expected="at most %g s apart" % MAX_OFFSET_S,
               cause="clock-skew", remedy=_REMEDY, peers=[first, second])  # fmt: skip


def _many(close: Dict[str, Measured]) -> Iterator[Finding]:
    """Against the median: one wrong clock, or a wrong clock of the machine that asks, does not make the others wrong."""
    usual = median(one.offset_s for one in close.values())
    inside = median(one.error_s for one in close.values())
    found = False
    for name, one in close.items():
        apart, error = one.offset_s - usual, one.error_s + inside
        if abs(apart) - error > MAX_OFFSET_S:
            found = True
            yield warn("its clock is %.1f s %s those of the other nodes (+-%.1f s)" % (abs(apart), "ahead of" if apart > 0 else "behind", error),
                       name, source=SOURCE, observed=round(apart, 3), unit="s", expected="at most %g s" % MAX_OFFSET_S, cause="clock-skew",
                       remedy=_REMEDY)  # fmt: skip
    if not found:
        yield _agree(
            close,
            max(abs(one.offset_s - usual) for one in close.values()),
            max(one.error_s for one in close.values()) + inside,
        )


_REMEDY = "set it by the same time servers as the others: systemctl enable --now chronyd, on Debian and Ubuntu chrony; chronyc makestep (with no job on the node)"


def _agree(close: Dict[str, Measured], apart: float, error: float) -> Finding:
    return ok(
        "the clocks of %d nodes agree within %.2f s, measured to +-%.2f s" % (len(close), apart, error),
        source=SOURCE,
        observed=apart,
        unit="s",
    )


PROBE = Probe("clock-offset", "The nodes' clocks agree", judge)
