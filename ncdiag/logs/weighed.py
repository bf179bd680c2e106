"""Signals that another fact makes weaker or stronger: a scheduler that only passes on what happened, a filter that a connection met, RDMA that nobody has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import STANDING
from ncdiag.logs.readers import Readers
from ncdiag.logs.rules.processes import NODE_LOST
from ncdiag.nccl.log_facts import NcclFacts


def weigh(signals: Sequence[Signal], readers: Readers, facts: NcclFacts) -> None:
    """Changes signals."""
    _node_gone(signals)
    _filtered(signals)
    _works_over_sockets(signals, readers)
    _no_rdma(signals, facts)


_TAKEN_OFF = re.compile(r"[Tt]aint|DisruptionTarget|PodGC|EvictionByEvictionAPI|CANCELLED")


def _node_gone(signals: Sequence[Signal]) -> None:
    """A scheduler that lost a node takes the job off it, and its words for that are no more than the messenger's."""
    if not any(signal.summary == NODE_LOST for signal in signals):
        return
    for signal in signals:
        taken = signal.evidence and _TAKEN_OFF.search(signal.evidence[0].text)
        if signal.cause == "killed-by-scheduler" and signal.says is not Says.NAMED and taken:
            signal.says = min(signal.says, Says.HINT)


def _filtered(signals: Sequence[Signal]) -> None:
    """A filter is known, and a connection was not answered (neither accepted nor refused): that is no condition that may be harmless."""
    asked = any(
        signal.says is Says.SYMPTOM
        and "bootstrap-blocked-firewall" in signal.candidates
        and signal.order < STANDING - 9
        and not any("refused" in item.text for item in signal.evidence[:1])
        for signal in signals
    )
    for signal in signals:
        if asked and signal.cause == "bootstrap-blocked-firewall" and signal.condition and signal.says is Says.HINT:
            signal.says, signal.condition = Says.STRONG, False


def _works_over_sockets(signals: Sequence[Signal], readers: Readers) -> None:
    """A job that works over TCP sockets for want of a library: that it is slow is seen, that there are RDMA devices is not."""
    if not readers.proofs() or not any(signal.cause == "net-fallback-slow" for signal in signals):
        return
    for signal in signals:
        if signal.cause == "rdma-unavailable" and "net-fallback-slow" in signal.candidates:
            signal.says, signal.candidates = Says.HINT, ()


def _no_rdma(signals: Sequence[Signal], facts: NcclFacts) -> None:
    """Where NCCL finds no RDMA device, what GPUDirect lacks does not matter."""
    networks = {process.network for process in facts.processes} - {None, "Socket"}
    if networks or not any(process.ib_no_device for process in facts.processes):
        return
    for signal in signals:
        if signal.cause == "gdr-disabled":
            signal.says = min(signal.says, Says.HINT)
