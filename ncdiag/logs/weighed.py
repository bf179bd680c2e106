"""Signals that another fact makes weaker or stronger: a scheduler that only passes on what happened, a machine that was taken from Ray, a memory fault
that was contained, a filter that a connection met, RDMA that nobody has."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.kinds import UNLOADABLE
from ncdiag.logs.model import STANDING
from ncdiag.logs.readers import Readers
from ncdiag.logs.rules.processes import NODE_LOST
from ncdiag.nccl.log_facts import NcclFacts


def weigh(signals: Sequence[Signal], readers: Readers, facts: NcclFacts) -> None:
    """Changes signals."""
    _node_gone(signals)
    _taken_from_ray(signals)
    _contained(signals)
    _never_plugged(signals)
    _filtered(signals)
    _works_over_sockets(signals, readers, facts)
    _no_rdma(signals, facts)
    _of_another_job(signals, readers)


_TAKEN_OFF = re.compile(r"[Tt]aint|DisruptionTarget|PodGC|EvictionByEvictionAPI|CANCELLED")


def _node_gone(signals: Sequence[Signal]) -> None:
    """A scheduler that lost a node takes the job off it, and its words for that are no more than the messenger's."""
    if not any(signal.summary == NODE_LOST for signal in signals):
        return
    for signal in signals:
        taken = signal.evidence and _TAKEN_OFF.search(signal.evidence[0].text)
        if signal.cause == "killed-by-scheduler" and signal.says is not Says.NAMED and taken:
            signal.says = min(signal.says, Says.HINT)


_MACHINE_TAKEN = re.compile(
    r"(?i)(?:preempt|terminate)scheduled|scheduled for preemption|spot ?interruption|preemptionnotice"
)


def _taken_from_ray(signals: Sequence[Signal]) -> None:
    """A provider that took a machine back ended no job by name: what Ray says of that node is what happened to this one."""
    lost = next(
        (
            signal
            for signal in signals
            if signal.cause == "ray-node-lost" and signal.says >= Says.STRONG and not signal.condition
        ),
        None,
    )
    if lost is None:
        return
    taken = [
        signal
        for signal in signals
        if signal.cause == "killed-by-scheduler" and signal.evidence and _MACHINE_TAKEN.search(signal.evidence[0].text)
    ]
    for signal in [*taken, *(signal for signal in signals if taken and signal.summary == NODE_LOST)]:
        signal.says, signal.condition = Says.HINT, True
    for signal in taken[:1]:
        lost.evidence.extend(signal.evidence[:1])
        lost.summary += "; the provider took the machine back"


_MEMORY_FAULT = re.compile(r"Xid[^\n]{0,40}: (?:48|94|95)\b|(?i:uncorrect(?:able|ed))|DRAM Uncorrect|\becc\.errors")


def _contained(signals: Sequence[Signal]) -> None:
    """A GPU whose faulty row is to be remapped, and which reports nothing but that memory error: a reset is what it needs."""
    pending = [signal for signal in signals if signal.cause == "gpu-ecc-row-remap" and signal.says is Says.NAMED]
    faults = [signal for signal in signals if signal.cause == "gpu-hardware-fault"]
    if not pending or any("Failure" in item.text for signal in pending for item in signal.evidence):
        return
    if all(signal.evidence and _MEMORY_FAULT.search(signal.evidence[0].text) for signal in faults):
        for signal in faults:
            signal.says, signal.condition = min(signal.says, Says.HINT), True
        for signal in pending:
            signal.condition = signal.condition and not faults


_UNPLUGGED = re.compile(r"mlx[45]_core (?P<device>[0-9a-f:.]+):.*Cable unplugged")


def _never_plugged(signals: Sequence[Signal]) -> None:
    """A driver that starts says the same of a port without a cable as of one whose cable is pulled; only the latter's link goes down."""
    words = [
        item.text
        for signal in signals
        for item in signal.evidence
        if "ink down" in item.text or "ink is Down" in item.text
    ]
    for signal in signals:
        port = _UNPLUGGED.search(signal.evidence[0].text) if signal.evidence else None
        if (
            port is not None
            and signal.cause == "ib-link-or-hca-fault"
            and not any(port["device"] in text for text in words)
        ):
            signal.says = Says.CASCADE


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


def _works_over_sockets(signals: Sequence[Signal], readers: Readers, facts: NcclFacts) -> None:
    """A job that works over TCP sockets for want of a library: that it is slow is seen, that there are RDMA devices is not; a plugin that is there and cannot be loaded says why."""
    hosts = {process.host for process in facts.processes if process.network == "Socket"}
    slow = any(signal.cause == "net-fallback-slow" for signal in signals)
    if not readers.proofs() or not (slow or len(hosts) > 1):
        return
    for signal in signals:
        if slow and signal.cause == "rdma-unavailable" and "net-fallback-slow" in signal.candidates:
            signal.says, signal.candidates = Says.HINT, ()
        if signal.kind == UNLOADABLE and signal.condition and len(hosts) > 1:
            signal.says = Says.STRONG
            signal.summary = f"traffic between the nodes goes over TCP sockets: {signal.summary}"


def _no_rdma(signals: Sequence[Signal], facts: NcclFacts) -> None:
    """Where NCCL finds no RDMA device, what GPUDirect lacks does not matter."""
    networks = {process.network for process in facts.processes} - {None, "Socket"}
    if networks or not any(process.ib_no_device for process in facts.processes):
        return
    for signal in signals:
        if signal.cause == "gdr-disabled":
            signal.says = min(signal.says, Says.HINT)


def _of_another_job(signals: Sequence[Signal], readers: Readers) -> None:
    """Addresses by which the nodes of a job are known that works, in a log of its own, are not those of the one that fails."""
    works = {line.source for line in readers.proofs()}
    for signal in signals:
        failing, *known = [item.source for item in signal.evidence] or [""]
        if signal.cause == "socket-ifname-wrong" and failing not in works and known and works.issuperset(known):
            signal.cause, signal.says = "", Says.CASCADE
