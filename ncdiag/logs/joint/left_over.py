"""Processes of an earlier run that hold what this one needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.readers import Readers
from ncdiag.logs.sockets import Row

_FULL = ("kv-cache-no-memory", "gpu-memory-exhausted")


def left_over(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A table of sockets shows an engine's process at the port that is taken, or one of processes shows workers without their engine: perhaps an earlier run."""
    full = [signal for signal in signals if signal.cause in _FULL and not signal.condition]
    occupied = next((signal for signal in signals if signal.cause in ("gpu-memory-occupied", "port-in-use")), None)
    orphans = readers.processes.orphans
    if orphans and occupied is None and full:
        occupied = full[0]
        for signal in full:
            signal.says = min(signal.says, Says.STRONG)
    if orphans and (occupied is not None or readers.smi.holders & set(orphans)):
        lines = [line.evidence() for line in list(orphans.values())[:4]]
        yield Signal(
            "stale-process",
            Says.STRONG,
            f"workers run without the engine that started them (parent 1): process {', '.join(map(str, list(orphans)[:6]))}",
            lines,
            {"pid": next(iter(orphans))},
            order=min((signal.order for signal in signals), default=0.0) - 1,
        )
    _holding(signals, readers)
    for signal in signals:
        holder = readers.sockets.holder(str(signal.where.get("port", ""))) if signal.cause == "port-in-use" else None
        if holder is not None:
            yield _of_holder(signal, holder, signals, readers)
            return


def _holding(signals: Sequence[Signal], readers: Readers) -> None:
    """A process that is said to be of an earlier run is the one that holds GPU memory: it comes before what lacks that memory."""
    first = min((signal.order for signal in signals), default=0.0)
    for signal in signals:
        if signal.cause == "stale-process" and signal.where.get("pid") in readers.smi.holders:
            signal.order = first - 1
            signal.summary += f"; it is process {signal.where['pid']}, which holds GPU memory"


_PID = re.compile(r"\bpid=(\d{1,9})|^(\d{1,9})/")


def _of_holder(taken: Signal, holder: Row, signals: Sequence[Signal], readers: Readers) -> Signal:
    """Who listens at the port that is taken: ranks of an earlier run where a table of processes shows several of them without their launcher."""
    pid = _PID.search(holder.process)
    ranks = readers.processes.ranks_left(int(pid[1] or pid[2])) if pid else {}
    for signal in signals:
        if signal.cause == "port-in-use" and signal.where.get("port", holder.local_port) == holder.local_port:
            signal.says = min(signal.says, Says.STRONG)
    if ranks:
        return Signal(
            "stale-process",
            Says.STRONG,
            f"port {holder.local_port} is held by one of {len(ranks)} processes of one program that outlived their launcher (parent 1): an earlier run",
            [holder.line.evidence(), *[line.evidence() for line in list(ranks.values())[:4]]],
            {"pid": next(iter(ranks))},
            order=min(signal.order for signal in signals) - 1,
        )
    return Signal(
        "stale-process",
        Says.STRONG,
        f"port {holder.local_port} is held by {holder.process}: an earlier run, if it is none of this one",
        [holder.line.evidence()],
        order=taken.order + 1,
    )
