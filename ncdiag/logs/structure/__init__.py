"""What the structure of an NCCL log says, beyond single lines: networks, stages, missing and different ranks, GPUDirect, whether it came up.

Ranks of which a log has no line are not missing ranks: nobody may have kept their log. So they give a hint at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ncdiag.explain import Signal
from ncdiag.logs.jobs import jobs
from ncdiag.logs.structure.look import Look
from ncdiag.logs.structure.network import interfaces, networks
from ncdiag.logs.structure.ranks import failed, lonely, one_gpu, peer_access, stranger, stuck, versions
from ncdiag.logs.structure.rdma import devices, gdr, gids
from ncdiag.nccl.log_facts import Line, NcclFacts


def signals(facts: NcclFacts, order: dict[str, float], several: bool = False) -> Iterator[Signal]:
    """`order`: source -> position of its first line over all sources. `several`: the job is known to run on several hosts."""
    for job in jobs(facts):
        yield from _of_job(Look(job, order, several))


def _of_job(look: Look) -> Iterator[Signal]:
    yield from versions(look)
    yield from interfaces(look)
    yield from networks(look)
    yield from gdr(look)
    yield from lonely(look)
    yield from one_gpu(look)
    yield from stuck(look)
    yield from stranger(look)
    yield from peer_access(look)
    yield from devices(look)
    yield from gids(look)
    yield from failed(look)


def initialised(facts: NcclFacts) -> Optional[Line]:
    """The line that shows the last of all communicators complete; None when one is not, or none is there."""
    ranks = [rank for comm in facts.communicators for rank in comm.ranks]
    if any(rank.stage not in ("complete", "destroyed") for rank in ranks):
        return None
    return next((rank.stage_at for rank in reversed(ranks) if rank.stage_at), None)
