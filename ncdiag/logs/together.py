"""What signals of several readers mean together: which doubt each other, which of two causes a third fact decides, and whether it worked in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ncdiag.explain import Says, Signal
from ncdiag.logs import closer
from ncdiag.logs.documents import Documents
from ncdiag.logs.joint.apart import apart
from ncdiag.logs.joint.attempts import superseded
from ncdiag.logs.joint.both_ends import both_ends
from ncdiag.logs.joint.crashed import crashed_first
from ncdiag.logs.joint.hardware import (
    integrated,
    manager_runs,
    path_explained,
    same_device,
    some_devices,
    switched_off,
    unlimited,
)
from ncdiag.logs.joint.left_over import left_over
from ncdiag.logs.joint.other_programs import other_programs
from ncdiag.logs.joint.outcome import fine, outcome
from ncdiag.logs.joint.refused import refused
from ncdiag.logs.joint.sizes import undivided
from ncdiag.logs.joint.under_ray import (
    dead_by_word,
    head_reached,
    no_driver,
    no_gpu,
    nobody_holds,
    raylet_found,
    room_enough,
)
from ncdiag.logs.joint.waits import ended_while_waiting, limit_after_a_fault, waited_for_load, waited_for_work
from ncdiag.logs.one_bridge import bridged
from ncdiag.logs.own_store import own_stores
from ncdiag.logs.readers import Readers
from ncdiag.logs.trials import restarts, trials
from ncdiag.logs.waiters import silent
from ncdiag.logs.weighed import weigh
from ncdiag.nccl.log_facts import NcclFacts


def refine(
    found: Sequence[Signal],
    readers: Readers,
    documents: Documents,
    facts: NcclFacts,
    order: dict[str, float],
    ray: bool,
    unsaid: Callable[[Sequence[Signal]], Iterable[Signal]],
) -> list[Signal]:
    """All signals, those of single lines and those of what stands together. `order`: source -> position of its first line. `ray`: Ray is at work.
    `unsaid`: what looks wrong in words that no rule knows; asked where nothing else says what ended the job."""
    signals = _without_the_end(found, readers)
    unlimited(signals, readers)
    manager_runs(signals, readers)
    same_device(signals, readers)
    no_gpu(signals, ray)
    no_driver(signals, readers, ray)
    nobody_holds(signals, readers)
    room_enough(signals, readers)
    some_devices(signals, facts)
    path_explained(signals)
    switched_off(signals, readers)
    integrated(signals, readers)
    ended_while_waiting(signals, readers)
    limit_after_a_fault(signals)
    head_reached(signals, readers)
    raylet_found(signals)
    dead_by_word(signals)
    crashed_first(signals)
    refused(signals)
    other_programs(signals, readers)
    weigh(signals, readers, facts)
    superseded(signals, readers)
    signals.extend(list(closer.look(signals, readers, facts, order)))
    signals.extend(
        [*left_over(signals, readers), *waited_for_load(signals, readers), *waited_for_work(signals, readers)]
    )
    signals.extend(undivided(readers))
    ends = list(both_ends(signals, facts, order))
    if ends:
        signals.extend(ends)
    else:
        _silent_death(signals, readers, len(order.keys() - {line.source for line in readers.proofs()}))
    signals.extend(silent(readers.watchdog, facts))
    signals.extend(list(apart(signals, {**readers.placed_containers.places, **readers.placed_pods.places}, facts)))
    signals.extend(list(bridged(signals, facts)))
    signals.extend(own_stores(readers.own_store, facts, readers.proofs()))
    signals.extend(trials(readers.life, readers.works(), facts, order))
    ended = [signal.order for signal in signals if signal.says >= Says.STRONG and not signal.condition]
    signals.extend(restarts(readers.works(), readers.worked_first, facts, order, ended))
    if not any(signal.cause and not signal.condition for signal in signals):
        signals.extend(list(unsaid(signals)))
    signals.extend(outcome(signals, readers, facts, order))
    if all(signal.says is Says.CASCADE and signal.condition for signal in signals):
        signals.extend(fine(documents, readers))
    return closer.settled(signals)


def _without_the_end(signals: Sequence[Signal], readers: Readers) -> list[Signal]:
    """Without the noise of servers that had come up and were then told to end, and of what ran beside them."""
    ended = readers.starts.ended
    if not ended:
        return list(signals)

    def noise(signal: Signal) -> bool:
        source = signal.evidence[0].source if signal.evidence else ""
        program = signal.cause in ("engine-exception", "framework-version-bug")
        after = source in ended and signal.order > ended[source]
        if after and (program or signal.says <= Says.SYMPTOM or signal.cause == "rank-died"):
            return True
        aside = source not in readers.starts.sources and readers.starts.served is not None
        return (aside and program) or (source not in ended and signal.says is Says.CASCADE)

    return [signal for signal in signals if not noise(signal)]


def _silent_death(signals: Sequence[Signal], readers: Readers, sources: int) -> None:
    """A peer is gone, several logs are here, and none of them holds an exception of its own: a process was killed."""
    if (
        sources < 2
        or readers.exceptions.own()
        or any(signal.says >= Says.STRONG and not signal.condition for signal in signals)
    ):
        return
    for signal in signals:
        if signal.cause == "rank-died" and signal.says is Says.HINT:
            signal.says = Says.STRONG
