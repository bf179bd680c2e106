"""Ranks that ran into the time limit of a collective, and the one rank of their communicator that says nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.torch import Watchdog
from ncdiag.nccl.log_facts import Communicator, NcclFacts
from ncdiag.nodeset import ranks

_MAY_BE = ("rank-stuck-outside-collective", "rank-died", "rank-stopped")
"""What a rank that is not heard of any more is; its log cannot tell which."""


def silent(watchdog: Watchdog, facts: NcclFacts) -> Iterator[Signal]:
    """All logs are here, the communicator was made, and most of its ranks waited in vain in one collective: the others held them up.

    A rank may come one collective further than its neighbours before it has to wait, too. Logs alone do not say whether those died without a word, are stopped, or do something else, so every one of it is only possible.
    """
    comm = max(facts.communicators, key=lambda comm: comm.nranks, default=None)
    waited = watchdog.timeouts
    if comm is None or not waited or not _whole(comm):
        return
    members = {rank.rank for rank in comm.ranks}
    quiet = members - set(waited) - watchdog.heard
    sequences = {sequence for sequence, _, _ in waited.values()}
    if not quiet or len(quiet) * 2 > len(members) or max(sequences) - min(sequences) > 1 or not set(waited) <= members:
        return
    operation = next(iter(waited.values()))[1]
    lines = [line for _, (_, _, line) in sorted(waited.items())]
    summary = (
        f"rank {ranks(quiet)} says nothing more, and rank {ranks(waited)} waited in vain for the others "
        f"({operation} number {min(sequences)}): it died without a word, is stopped, or does something else"
    )
    where = {"rank": ranks(quiet), "node": next(rank.node for rank in comm.ranks if rank.rank in quiet) or ""}
    for cause in _MAY_BE:
        yield Signal(
            cause,
            Says.HINT,
            summary,
            [line.evidence() for line in lines[:8]],
            {name: value for name, value in where.items() if value},
            order=min(line.order for line in lines),
        )


def _whole(comm: Communicator) -> bool:
    """Whether all its ranks are in what was read, with a communicator that was made."""
    return comm.nranks > 1 and len(comm.ranks) == comm.nranks and all(rank.stage == "complete" for rank in comm.ranks)
