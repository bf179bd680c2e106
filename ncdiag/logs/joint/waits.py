"""Waits that ran into a limit: what was still under way then, and what had broken before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import STANDING, Line, speaker
from ncdiag.logs.readers import Readers
from ncdiag.logs.starts.markers import ORDER
from ncdiag.model import Evidence

_TIME_LIMIT = re.compile(r"(?i)time ?limit|walltime|deadline")


def ended_while_waiting(signals: Sequence[Signal], readers: Readers) -> None:
    """A probe ended a start that stood before it loaded anything: it may have hung, and then a longer probe does not help."""
    stages = [ORDER.index(stage) for _, stage, _ in readers.starts.reached()]
    if stages and max(stages) < ORDER.index("load"):
        for signal in signals:
            if signal.cause == "slow-not-hung" and any(
                (item.source, item.line) in readers.pods.kills for item in signal.evidence
            ):
                signal.cause, signal.says, signal.candidates = "", Says.SYMPTOM, ("slow-not-hung",)


def limit_after_a_fault(signals: Sequence[Signal]) -> None:
    """A job that ran into its time limit after something had broken in it hung until then."""
    for signal in signals:
        item = signal.evidence[0] if signal.evidence else None
        if signal.cause != "killed-by-scheduler" or item is None or not _TIME_LIMIT.search(item.text):
            continue
        if any(
            other.says >= Says.STRONG
            and not other.condition
            and other.cause != signal.cause
            and other.evidence[0].source == item.source
            and other.order < signal.order
            for other in signals
        ):
            signal.says = min(signal.says, Says.STRONG)


def waited_for_load(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A wait ran into its limit while one node still loaded what another one had."""
    uneven = readers.starts.progress.uneven()
    if (
        uneven is not None
        and (readers.starts.ready is None or readers.starts.ready.source not in {line.source for line in uneven})
        and any(
            signal.says is Says.SYMPTOM
            and {"rank-stuck-outside-collective", "slow-load-peer-timeout"} & {*signal.candidates}
            and signal.order < STANDING - 9
            for signal in signals
        )
    ):
        yield Signal(
            "slow-load-peer-timeout",
            Says.STRONG,
            "one node still loads its weights while another one waits for it and runs into its time limit",
            [line.evidence() for line in uneven],
            speaker(uneven[0].shown),
            order=uneven[0].order,
        )


_LIMIT = re.compile(r"Timeout\(ms\)=(\d+)|wait timeout after (\d+)ms")
LONG_WORK_S = 60.0  # of work before the common one, that a fixed limit of unknown length may have run out in


def waited_for_work(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A wait ran into its limit while work of one process, which says how far it is, was under way for most of that time."""
    for percent, seconds, line, others in _works(readers):
        if readers.starts.served is not None and readers.starts.served.order > line.order:
            continue
        for signal in signals:
            waits = signal.says is Says.SYMPTOM and {"rank-stuck-outside-collective", "slow-load-peer-timeout"} & {
                *signal.candidates
            }
            if not waits or signal.order >= STANDING - 9 or signal.evidence[0].source != line.source:
                continue
            limit = _LIMIT.search(signal.evidence[0].text)
            if seconds >= (int(limit[1] or limit[2]) / 2000 if limit else LONG_WORK_S):
                yield Signal(
                    "slow-load-peer-timeout",
                    Says.STRONG,
                    f"the others wait and run into their time limit while work of one process is at {percent}% after {seconds / 60:.0f} min and goes on",
                    [line.evidence(), *others, signal.evidence[0]],
                    speaker(line.shown),
                    order=signal.order,
                    remedy=_FASTER
                    if others
                    else "do this work before the launch (a cache on all nodes), or raise the time limit that fires (ddp_timeout, init_process_group's timeout, the library's own)",
                )
                return


_FASTER = "make what is slow there as fast as on the others (a copy of the checkpoint on that node's own disk, as they have), or raise the time limit that fires (ddp_timeout, init_process_group's timeout)"


def _works(readers: Readers) -> Iterator[tuple[int, float, Line, list[Evidence]]]:
    """Work that stands last, and work of one process that another one had finished in the same run: percent, seconds, line, and the line of the other one."""
    last, behind = readers.starts.progress.preparing(), readers.starts.progress.behind()
    if last is not None:
        yield (*last, [])
    if behind is not None:
        late, done = behind
        if readers.life.same_run(late.line.source, late.line.order, done.line.order):
            yield late.percent, late.seconds, late.line, [done.line.evidence()]
