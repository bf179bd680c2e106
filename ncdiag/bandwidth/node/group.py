"""The process group, and what is done with it the same way on GPUs and CPUs."""

from __future__ import annotations

import datetime
import time
from typing import Any, Callable, Dict, List, Optional

Emit = Callable[[Dict[str, Any]], None]
GRAPHED = 5
"""Operations of one graph. NCCL records an event in it for each (NCCL_GRAPH_MIXING_SUPPORT), and those hold long rows of nothing but operations up."""


class Group:
    """The process group and what is done with it the same way on GPUs and CPUs."""

    def __init__(self, job: Dict[str, Any], emit: Emit) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist, self.job = torch, dist, job
        self.rank, self.world = int(job["rank"]), int(job["world"])
        self.cuda = job["backend"] == "nccl"
        limit = datetime.timedelta(seconds=float(job["timeout_s"]))
        master = self.rank == 0
        where = job["store"]
        store = dist.TCPStore(
            where["host"], int(where["port"]), self.world, master, timeout=limit, wait_for_workers=False
        )
        if master:
            emit({"event": "store", "port": store.port})
        self.device = torch.device("cuda", int(job["device"])) if self.cuda else torch.device("cpu")
        options: Dict[str, Any] = {}
        if self.cuda:
            torch.cuda.set_device(self.device)
            options["device_id"] = self.device
        else:
            torch.set_num_threads(int(job.get("threads", 1)))
        emit({"event": "stage", "stage": "joining"})
        try:
            dist.init_process_group(
                job["backend"], store=store, rank=self.rank, world_size=self.world, timeout=limit, **options
            )
        except TypeError:  # torch before 2.3 has no device_id
            dist.init_process_group(job["backend"], store=store, rank=self.rank, world_size=self.world, timeout=limit)
        self.dtype = getattr(torch, job["dtype"])
        self.small = torch.ones(1, device=self.device)
        emit({"event": "stage", "stage": "connecting"})
        dist.all_reduce(self.small)
        self.wait()
        emit({"event": "stage", "stage": "connected"})

    def wait(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize()

    def agree(self, *values: float) -> List[float]:
        """The greatest of each value over all ranks, so that all decide alike."""
        shared = self.torch.tensor(values, dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(shared, op=self.dist.ReduceOp.MAX)
        return [float(value) for value in shared.tolist()]

    def total(self, operation: Callable[[], Any], count: int) -> float:
        """Seconds of `count` operations on a GPU back to back, after all ranks have met, with nothing between them."""
        self.dist.all_reduce(self.small)
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            operation()
        end.record()
        self.torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def graph(self, operation: Callable[[], Any], count: int) -> Optional[Callable[[], None]]:
        """GRAPHED operations as one launch; None where one of the ranks cannot, or where launching `count` of them one by one is faster."""
        torch = self.torch
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(GRAPHED):
                    operation()
        except (RuntimeError, TypeError, AttributeError):  # an older torch or NCCL
            graph = None
        if self.agree(float(graph is None))[0]:
            return None
        replay: Callable[[], None] = graph.replay
        replay()
        rounds = max(count // GRAPHED, 1)
        together, apart = self.agree(
            self.total(replay, rounds) / rounds / GRAPHED, self.total(operation, count) / count
        )
        return replay if together < apart else None

    def time(self, operation: Callable[[], Any], count: int) -> List[float]:
        """Seconds of each of `count` operations back to back, after all ranks have met."""
        self.dist.all_reduce(self.small)
        if not self.cuda:
            marks = [time.perf_counter()]
            for _ in range(count):
                operation()
                marks.append(time.perf_counter())
            return [marks[index + 1] - marks[index] for index in range(count)]
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            operation()
            event.record()
        self.torch.cuda.synchronize()
        return [events[index].elapsed_time(events[index + 1]) / 1000 for index in range(count)]

    def close(self) -> None:
        self.dist.destroy_process_group()
