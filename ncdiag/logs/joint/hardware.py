"""What is known of devices, limits and services decides what a message about them means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers
from ncdiag.nccl.log_facts import NcclFacts


def unlimited(signals: Sequence[Signal], readers: Readers) -> None:
    """Locked memory is known to be unlimited: registering memory fails for another reason."""
    if readers.limits.unlimited is None:
        return
    for signal in signals:
        if signal.cause in ("memlock-limit", "rdma-memory-registration") and signal.says is not Says.NAMED:
            signal.says = Says.HINT if signal.cause == "memlock-limit" else Says.STRONG


def manager_runs(signals: Sequence[Signal], readers: Readers) -> None:
    """Fabric Manager is known to run: what usually means that it does not has another reason."""
    if "nvidia-fabricmanager" not in readers.services.running:
        return
    for signal in signals:
        if signal.cause == "fabric-manager-not-running":
            signal.says = Says.HINT


_FLAP = re.compile(r"(?i)(?:mlx[45]_core|irdma|bnxt_re|ionic)\b.*(?:link down|cable (?:unplugged|error))")


def same_device(signals: Sequence[Signal], readers: Readers) -> None:
    """A port that is not active, or of another MTU than its peer, on the very device whose packets are not acknowledged, or an RDMA adapter whose kernel driver saw its link go: that is what ends the job."""
    failing = {
        str(signal.where.get("device", "")).partition(":")[0]
        for signal in signals
        if signal.cause == "ib-path-unreachable" and not signal.condition
    } - {""}
    unacknowledged = any(signal.cause == "ib-path-unreachable" and not signal.condition for signal in signals)
    for signal in signals:
        at = signal.evidence[0] if signal.evidence else None
        if unacknowledged and at and signal.cause == "ib-link-or-hca-fault" and _FLAP.search(at.text):
            signal.condition = False
        device = readers.verbs.inactive.get((at.source, at.line or 0)) if at else None
        if signal.cause == "mtu-mismatch":
            device = str(signal.where.get("device", ""))
        if device in failing and signal.cause in ("ib-link-or-hca-fault", "mtu-mismatch"):
            signal.condition = False
            signal.where.setdefault("device", device)


def some_devices(signals: Sequence[Signal], facts: NcclFacts) -> None:
    """A node that uses some RDMA devices and cannot open others has them: it has fewer than the others. Drivers that are missing for other devices are noise there."""
    hosts = {process.host for process in facts.processes if process.net_devices and process.network != "Socket"}
    if hosts and not any(process.network == "Socket" for process in facts.processes):
        for signal in signals:
            if signal.cause == "rdma-unavailable" and "libibverbs: Warning" in signal.evidence[0].text:
                signal.cause, signal.says = "", Says.CASCADE
    if not any(event.kind == "ib-device-unusable" and event.host in hosts for event in facts.events):
        return
    for signal in signals:
        if signal.cause == "rdma-unavailable" and "ibv_open_device" in signal.evidence[0].text:
            signal.cause, signal.says, signal.candidates = (
                "hca-mismatch-between-nodes",
                Says.HINT,
                ("rdma-unavailable",),
            )


_UNPROTECTED = re.compile(r"enabled\s+0\s+0\s+0\s+0\s+0\s+0\s+0\s+0|PFC configuration|PFC: disabled")
_OUT_OF_ORDER = re.compile(r"(?:packet_seq_err|out_of_sequence)\b.*\d{3}")


def path_explained(signals: Sequence[Signal]) -> None:
    """RDMA fails on the way, and a fact shows why packets do not get through: that is what ended it, not a condition.

    A path that is broken makes packets be sent again, too: only where others arrive out of order, and no priority is protected, are they lost under load.
    """
    said = [item.text for signal in signals if signal.cause == "roce-lossless-missing" for item in signal.evidence]
    lossy = any(_UNPROTECTED.search(text) for text in said) and any(_OUT_OF_ORDER.search(text) for text in said)
    if any(
        signal.cause == "ib-path-unreachable" and signal.says >= Says.STRONG and not signal.condition
        for signal in signals
    ):
        for signal in signals:
            if signal.cause in ("roce-over-bond", "mtu-mismatch", "roce-gid-wrong") and signal.says is Says.STRONG:
                signal.condition = False
            if signal.cause == "roce-lossless-missing" and lossy:
                signal.condition = False


def integrated(signals: Sequence[Signal], readers: Readers) -> None:
    """GPUs without memory of their own have no GPUDirect RDMA, and need none."""
    for signal in signals:
        if signal.cause == "gdr-disabled" and readers.models.integrated:
            signal.cause, signal.says = "", Says.CASCADE


def switched_off(signals: Sequence[Signal], readers: Readers) -> None:
    """A port that somebody switched off is mostly one that nobody uses; one that NCCL_IB_HCA leaves out is certainly none."""
    verbs = readers.verbs
    for signal in signals:
        places = [(item.source, item.line or 0) for item in signal.evidence]
        if verbs.off.intersection(places):
            signal.says = min(signal.says, Says.HINT)
        if signal.cause == "ib-link-or-hca-fault" and any(
            place in verbs.inactive and not verbs.used(verbs.inactive[place]) for place in places
        ):
            signal.says = Says.CASCADE
