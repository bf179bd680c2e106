"""Whether the buffers of a run fit: on each GPU, or beside each other in the memory of a node without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncdiag.bandwidth.job import Place
from ncdiag.bandwidth.occupancy import RANK_BYTES

GIB = 1 << 30
GPU_BYTES = 2 * GIB
"""What a rank takes on a GPU beside its buffers: context, NCCL's own buffers, the check in chunks."""
_SPLIT = ("all_gather", "reduce_scatter")


@dataclass(frozen=True)
class Room:
    """Where there is least of it for one rank."""

    where: str
    """`GPU 3 of gpu07`, or `gpu07`."""
    free: int
    """Bytes that are free there."""
    ranks: int
    """So many ranks share these."""
    own: int
    """Bytes that one takes beside its buffers."""

    @property
    def each(self) -> int:
        """Bytes for the buffers of one rank."""
        return max(self.free // self.ranks - self.own, 0)


def factor(op: str, ranks: int, backend: str) -> float:
    """Bytes that a rank holds for one byte of an operation's size, which is that of all ranks' parts together.

    NCCL: what `worker.Case` makes, in and out of place. Gloo: as measured with 2 and 4 ranks of torch 2.13, copies that it makes by itself with it.
    """
    if backend == "nccl":
        return 1 + 1 / ranks if op in _SPLIT else 2.0
    return 2 + 3 / ranks if op in _SPLIT else 1.5 if op == "all_reduce" else 2.6


def tightest(places: Sequence[Place], agents: Sequence[Any], backend: str) -> Room | None:
    """`agents`: with `node` and `facts`. None: no node says what is free."""
    by_node = Counter(agents[place.agent].node for place in places)
    rooms = []
    for place in places:
        agent = agents[place.agent]
        facts = agent.facts or {}
        if backend == "nccl":
            free = _gpu_free(facts, place.device)
            room = free and Room(f"GPU {place.device} of {agent.node}", free, 1, GPU_BYTES)
        else:
            free = facts.get("memory_free")
            room = free and Room(agent.node, free, by_node[agent.node], RANK_BYTES)
        rooms += [room] if room else []
    return min(rooms, key=lambda room: room.each, default=None)


def _gpu_free(facts: Mapping[str, Any], device: int) -> int | None:
    cuda = facts.get("cuda") or ()
    if device >= len(cuda):
        return None
    free = (facts.get("gpus") or {}).get("free_mib", {})
    uuid = str(cuda[device].get("uuid", "")).removeprefix("GPU-")
    found = next((mib for name, mib in free.items() if uuid and name.removeprefix("GPU-") == uuid), None)
    return int(found) << 20 if found is not None else cuda[device].get("memory")


def largest(ops: Sequence[str], ranks: int, room: Room, backend: str) -> int:
    """The largest size, a power of two, at which every operation fits; 0: none."""
    fits = int(room.each / max(factor(op, ranks, backend) for op in ops))
    return 1 << (fits.bit_length() - 1) if fits else 0


def why(switch: str, size: int, ops: Sequence[str], ranks: int, room: Room, backend: str) -> str:
    """One sentence why `size` does not fit, with the way out."""
    op = max(ops, key=lambda op: factor(op, ranks, backend))
    needed = size * factor(op, ranks, backend) + room.own
    each = f"each of the {room.ranks} ranks" if room.ranks > 1 else "the rank"
    most = largest(ops, ranks, room, backend)
    out = f"{switch} {written(most)} is the most that fits" if most else "nothing fits there"
    return (
        f"{switch} {written(size)}: {op} of that size takes {needed / GIB:.3g} GiB of {each} on {room.where}, "
        f"which has {room.free / GIB:.3g} GiB of memory free; {out}"
    )


def written(size: int) -> str:
    """As it is given on the command line: `512M`."""
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if size and not size % (1 << shift):
            return f"{size >> shift}{unit}"
    return str(size)
