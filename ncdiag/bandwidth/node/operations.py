"""The operations: how each is done once, and whether its result is right."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from ncdiag.bandwidth.node.group import Group
from ncdiag.bandwidth.node.nccl import out_of_place

CHECK_CHUNK = 1 << 22
"""Elements that are compared at a time, so that checking needs little memory."""


class Case:
    """One operation at one size: `operation()` does it once, `wrong()` counts wrong elements after a run on fresh data."""

    def __init__(self, group: Group, op: str, size: int, in_place: bool, seed: int) -> None:
        self.group, self.op, self.in_place, self.seed = group, op, in_place, seed
        n, item = group.world, group.torch.empty(0, dtype=group.dtype).element_size()
        self.share = max(size // item // (n if op in ("all_gather", "reduce_scatter", "all_to_all") else 1), 1)
        self.count = self.share * (n if op in ("all_gather", "reduce_scatter", "all_to_all") else 1)
        self.size = self.count * item
        self.mask = 7 if n * 7 <= 256 else 1  # sums stay whole numbers that bfloat16 can hold
        self.operation = self._prepare()

    def release(self) -> None:
        """Lets its memory go at once: it and its operation hold each other, and the collector may come after the next case."""
        del self.operation, self.input, self.output

    def _empty(self, count: int) -> Any:
        return self.group.torch.empty(count, dtype=self.group.dtype, device=self.group.device)

    def _prepare(self) -> Callable[[], Any]:
        group, dist, share = self.group, self.group.dist, self.share
        mine = slice(group.rank * share, (group.rank + 1) * share)
        self.input = self._empty(share if self.op == "all_gather" and not self.in_place else self.count)
        self.output = self.input if self.in_place else self._empty(share if self.op == "reduce_scatter" else self.count)
        if self.op == "all_reduce":
            if not self.in_place:
                reduce = out_of_place(group)
                return lambda: reduce(self.input, self.output)
            return lambda: dist.all_reduce(self.input)
        if self.op == "all_gather":
            part = self.output[mine] if self.in_place else self.input
            gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
            return lambda: gather(self.output, part)
        if self.op == "reduce_scatter":
            part = self.input[mine] if self.in_place else self.output
            scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
            return lambda: scatter(part, self.input)
        if self.op == "all_to_all":
            return lambda: dist.all_to_all_single(self.output, self.input)
        if self.op == "send_recv":
            return lambda: self._exchange((group.rank + 1) % group.world, (group.rank - 1) % group.world)
        half = group.world // 2
        forward = self.op == "forward"
        low = group.rank < half
        peer = group.rank + half if low else group.rank - half
        return lambda: self._exchange(peer if low == forward else None, None if low == forward else peer)

    def _exchange(self, to: Optional[int], source: Optional[int]) -> None:
        dist = self.group.dist
        steps = [] if to is None else [dist.P2POp(dist.isend, self.input, to)]
        steps += [] if source is None else [dist.P2POp(dist.irecv, self.output, source)]
        for work in dist.batch_isend_irecv(steps):
            work.wait()

    def values(self, rank: int, start: int, count: int, slot: int = 0) -> Any:
        """What `rank` puts into its elements from `start` on: small whole numbers, pseudo-random by position, rank, `slot` and seed."""
        torch = self.group.torch
        index = torch.arange(start, start + count, dtype=torch.int32, device=self.group.device)
        key = (self.seed + 40503 * (rank + 1) + 7919 * slot) & 0x7FFFFFFF
        mixed = index * 1103515245 + key
        mixed = (mixed ^ (mixed >> 15)) * 747796405
        return ((mixed >> 13) & self.mask).to(self.group.dtype)

    def fill(self) -> None:
        rank = self.group.rank
        for start in range(0, self.input.numel(), CHECK_CHUNK):
            count = min(CHECK_CHUNK, self.input.numel() - start)
            self.input[start : start + count] = self.values(rank, start, count)
        if self.op == "all_gather" and self.in_place:
            own = slice(rank * self.share, (rank + 1) * self.share)
            self.input[own] = self.values(rank, 0, self.share)

    def expected(self, start: int, count: int) -> Any:
        """What the output must hold from `start` on, within one rank's share."""
        ranks, share = self.group.world, self.share
        if self.op in ("all_reduce", "reduce_scatter"):
            first = start + (self.group.rank * share if self.op == "reduce_scatter" else 0)
            total = self.values(0, first, count)
            for rank in range(1, ranks):
                total += self.values(rank, first, count)
            return total
        if self.op == "all_gather":
            return self.values(start // share, start % share, count)
        if self.op == "all_to_all":
            return self.values(start // share, self.group.rank * share + start % share, count)
        half = ranks // 2
        source = (self.group.rank - 1) % ranks if self.op == "send_recv" else (self.group.rank + half) % ranks
        return self.values(source, start, count)

    def wrong(self) -> int:
        self.fill()
        if not self.in_place:
            self.output.fill_(-1)
        self.operation()
        self.group.wait()
        half = self.group.world // 2
        if self.op in ("forward", "backward") and (self.group.rank < half) == (self.op == "forward"):
            return 0
        result = self.output
        if self.op == "reduce_scatter" and self.in_place:
            result = self.output[self.group.rank * self.share : (self.group.rank + 1) * self.share]
        bad, step = 0, min(CHECK_CHUNK, self.share)
        edges = list(range(0, result.numel(), self.share)) if self.op in ("all_gather", "all_to_all") else [0]
        for edge in edges:
            stop = min(edge + self.share, result.numel()) if len(edges) > 1 else result.numel()
            for start in range(edge, stop, step):
                count = min(step, stop - start)
                bad += int((result[start : start + count] != self.expected(start, count)).sum())
        return bad


def places(op: str, cuda: bool) -> Tuple[bool, ...]:
    """In which ways an operation is run: out of place (False), in place (True)."""
    if op == "all_reduce":
        return (False, True) if cuda else (True,)
    return (False, True) if op in ("all_gather", "reduce_scatter") else (False,)
