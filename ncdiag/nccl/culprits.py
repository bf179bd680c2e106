"""Which rank of a communicator holds up the others, as far as the log tells: the missing, the failed, or the least advanced."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from .. import nodeset
from .communicators import ORDER
from .log_facts import STAGES, Communicator, Process, Rank

DONE = ("complete", "destroyed")


def name(communicator: Communicator, idle: Sequence[Process]) -> None:
    """Set `culprits` and `reason`. Nobody is named where all ranks stand at the same point.

    `idle` are the processes that named no communicator: a missing rank may be one of them.
    """
    if not communicator.ranks:
        return
    waiting = [rank for rank in communicator.ranks if rank.stage not in DONE]
    communicator.culprits, communicator.reason = (
        _initialising(communicator, waiting) if waiting else _running(communicator)
    )
    if idle and communicator.culprits == communicator.missing and communicator.missing:
        text = ", ".join(f"{process.host} pid {process.pid} (at {process.stage})" for process in idle[:8])
        communicator.reason += f". Here, but without a communicator yet: {text}" + (" …" if len(idle) > 8 else "")


def _initialising(communicator: Communicator, waiting: List[Rank]) -> Tuple[List[int], str]:
    failed = [rank.rank for rank in waiting if rank.errors]
    if communicator.missing:
        last = max(ORDER[rank.stage] for rank in communicator.ranks)
        if last <= ORDER["bootstrap"]:
            text = "no line from rank {}; the others wait for it in the rendez-vous"
            return communicator.missing, text.format(nodeset.ranks(communicator.missing))
        if last >= ORDER["peers"]:
            return failed, _met(communicator, failed)
    if failed:
        return failed, f"rank {nodeset.ranks(failed)} reported an error before it was ready"
    stages = {rank.stage for rank in communicator.ranks}
    if len(stages) == 1:
        stage = stages.pop()
        return (
            [],
            f"{f'all {len(communicator.ranks)} ranks stand' if len(communicator.ranks) > 1 else 'the only rank stands'} at the same stage, {stage}; the log does not tell who is late",
        )
    lowest = min(stages, key=lambda stage: ORDER[stage])
    slow = [rank.rank for rank in communicator.ranks if rank.stage == lowest]
    if len(slow) * 2 > len(communicator.ranks) and STAGES[lowest] != "nobody":
        return [], f"most ranks ({nodeset.ranks(slow)}) wait at stage {lowest}; the log does not tell for whom"
    return slow, f"rank {nodeset.ranks(slow)} got no further than {lowest}; the others are ahead and wait"


def _met(communicator: Communicator, failed: List[int]) -> str:
    unread = nodeset.ranks(communicator.missing)
    text = f"no line from rank {unread}, but the rendez-vous succeeded, so these ranks ran: their logs are not here"
    return text + (f"; rank {nodeset.ranks(failed)} reported an error before it was ready" if failed else "")


def _running(communicator: Communicator) -> Tuple[List[int], str]:
    lazy = [rank for rank in communicator.ranks if rank.lazy_connect]
    behind = [rank.rank for rank in lazy if not rank.connected]
    if lazy and behind and len(behind) < len(lazy):
        text = "rank {} began to connect at its first collective and did not finish; others did"
        return behind, text.format(nodeset.ranks(behind))
    counts = {rank.op_count for rank in communicator.ranks if rank.op_count is not None}
    if len(counts) > 1:
        low = min(counts)
        late = [rank.rank for rank in communicator.ranks if rank.op_count == low]
        if len(late) * 2 <= len(communicator.ranks):
            return late, f"rank {nodeset.ranks(late)} enqueued collective {low} last, others are at {max(counts)}"
    return [], "initialised on all ranks read"
