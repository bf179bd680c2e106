"""One rank of a bandwidth run: joins the group, times collectives, checks their results. Runs in the engine's interpreter.

Imports torch and the standard library only (Python 3.8), because it is shipped as source to machines that have no ncdiag; `agent.py` forks a
process for every rank and calls `run`. A message is a dictionary that goes to `emit`:

`{"event": "store", "port"}` (rank 0: where the others meet), `{"event": "stage", "stage"}` (how far it is), `{"event": "row", …}` (one
operation at one size), `{"event": "self", …}` (what this machine does without the network), `{"event": "done", "counters"}`.
"""

from __future__ import annotations

import datetime
import glob
import math
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

Emit = Callable[[Dict[str, Any]], None]
_T975 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
)
"""Student's t for a two-sided confidence of 95 %, by degrees of freedom from 1."""
BATCHES = (5, 60)
"""Batches of iterations a size takes, at least and at most."""
BATCH_S = 0.03
GRAPH_BELOW_S = 1e-3
"""Operations on GPUs that take less are tried as CUDA graphs too, as an engine launches its decode steps: else it may be the CPU that is measured."""
SETTLE_BELOW_S = 0.05
GRAPHED = 5
"""Operations of one graph. NCCL records an event in it for each (NCCL_GRAPH_MIXING_SUPPORT), and those hold long rows of nothing but operations up."""
CHECK_CHUNK = 1 << 22
"""Elements that are compared at a time, so that checking needs little memory."""
TCP_INFO_BYTES = 232
_HCA_COUNTERS = (
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "roce_adp_retrans",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "port_rcv_errors",
    "port_xmit_discards",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
)


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


# --- the operations ---------------------------------------------------------------------------------------------------------------------------


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


def out_of_place(group: Group) -> Callable[[Any, Any], None]:
    """NCCL's all-reduce from one buffer to another, which torch does not offer: called in the NCCL library that torch has loaded."""
    if not hasattr(group, "nccl"):
        group.nccl = Nccl(group)  # type: ignore[attr-defined]
    return group.nccl.all_reduce  # type: ignore[attr-defined]


class Nccl:
    """A communicator of our own beside torch's."""

    def __init__(self, group: Group) -> None:
        import ctypes

        class UniqueId(ctypes.Structure):
            _fields_ = [("internal", ctypes.c_char * 128)]

        self.ctypes, self.group = ctypes, group
        self.library = ctypes.CDLL("libnccl.so.2")
        unique = UniqueId()
        if group.rank == 0:
            self._do("ncclGetUniqueId", ctypes.byref(unique))
        shared = group.torch.frombuffer(
            bytearray(ctypes.string_at(ctypes.addressof(unique), 128)), dtype=group.torch.uint8
        ).to(group.device)
        group.dist.broadcast(shared, 0)
        ctypes.memmove(ctypes.addressof(unique), bytes(shared.tolist()), 128)
        self.comm = ctypes.c_void_p()
        self._do("ncclCommInitRank", ctypes.byref(self.comm), group.world, unique, group.rank)

    def _do(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError("%s returned %d" % (name, status))

    def all_reduce(self, source: Any, target: Any) -> None:
        torch, pointer = self.group.torch, self.ctypes.c_void_p
        kind = {torch.float32: 7, torch.float16: 6, torch.bfloat16: 9}[self.group.dtype]
        stream = pointer(torch.cuda.current_stream().cuda_stream)
        count = self.ctypes.c_size_t(source.numel())
        self._do(
            "ncclAllReduce", pointer(source.data_ptr()), pointer(target.data_ptr()), count, kind, 0, self.comm, stream
        )


def places(op: str, cuda: bool) -> Tuple[bool, ...]:
    """In which ways an operation is run: out of place (False), in place (True)."""
    if op == "all_reduce":
        return (False, True) if cuda else (True,)
    return (False, True) if op in ("all_gather", "reduce_scatter") else (False,)


# --- timing -----------------------------------------------------------------------------------------------------------------------------------


def measure(group: Group, case: Case, job: Dict[str, Any]) -> Dict[str, Any]:
    """Times one case until the mean is known to `precision` with 95 % confidence, or its time is up. Times in seconds.

    On a GPU the mean is that of batches, as nccl-tests has it. A sample is one operation; in a graph (`graph`) the mean of GRAPHED of them.
    """
    case.fill()
    began = time.perf_counter()
    warm: List[float] = []
    for done in range(int(job["warmup"])):
        warm = group.time(case.operation, 1)
        if (
            group.agree(time.perf_counter() - began)[0] > float(job["budget_s"]) and done
        ):  # the first one may make connections
            break
    each = group.agree(warm[-1])[0]
    if group.cuda and each < SETTLE_BELOW_S:  # the last connections may have been made just now
        each = group.agree(group.total(case.operation, 5) / 5)[0]
    batch = int(min(max(BATCH_S / max(each, 1e-7), 1), 200))
    launch = group.graph(case.operation, batch) if group.cuda and each < GRAPH_BELOW_S else None
    run, held = (launch, GRAPHED) if launch else (case.operation, 1)
    launches = max(batch // held, 1)
    tcp = tcp_totals()
    samples: List[float] = []
    means: List[float] = []
    spread = math.inf
    began = time.perf_counter()
    while len(means) < BATCHES[1]:
        if group.cuda:
            means.append(group.total(run, launches) / launches / held)
        else:
            taken = group.time(run, batch)
            samples += taken
            means.append(sum(taken) / len(taken))
        spread = half_width(means)
        worst, spent = group.agree(spread / (sum(means) / len(means)), time.perf_counter() - began)
        if (len(means) >= BATCHES[0] and worst <= float(job["precision"])) or (
            len(means) >= 2 and spent > float(job["budget_s"])
        ):
            break
    if group.cuda:  # noting the time between operations holds them up by microseconds: these do not count for the mean
        samples = [seconds / held for seconds in group.time(run, batch)]
    lost = {name: value - tcp[name] for name, value in tcp_totals().items()}
    row = {
        "event": "row",
        "op": case.op,
        "size": case.size,
        "count": case.count,
        "in_place": case.in_place,
        "samples": len(samples),
        "graph": launch is not None,
        "mean_s": sum(means) / len(means),
        "half_width_s": spread if math.isfinite(spread) else None,
        **quantiles(samples),
        "tcp": lost,
    }
    row["wrong"] = case.wrong() if job["check"] else None
    return row


def half_width(means: List[float]) -> float:
    """Half of the 95 % confidence interval of the mean, from the means of batches; infinite for one batch."""
    count = len(means)
    if count < 2:
        return math.inf
    mean = sum(means) / count
    deviation = math.sqrt(sum((value - mean) ** 2 for value in means) / (count - 1))
    return (_T975[count - 2] if count - 2 < len(_T975) else 1.98) * deviation / math.sqrt(count)


def quantiles(samples: List[float]) -> Dict[str, float]:
    """Nearest rank, as nccl-tests has it."""
    ordered = sorted(samples)
    return {
        "min_s": ordered[0],
        "median_s": ordered[len(ordered) // 2],
        "p99_s": ordered[min(math.ceil(len(ordered) * 0.99), len(ordered)) - 1],
        "max_s": ordered[-1],
    }


# --- what the network and the machine did meanwhile -------------------------------------------------------------------------------------------


def tcp_totals() -> Dict[str, int]:
    """Segments sent and sent again on this process's own TCP connections that leave the machine (TCP_INFO: tcpi_data_segs_out, tcpi_total_retrans)."""
    sent = again = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family not in (socket.AF_INET, socket.AF_INET6) or copy.type != socket.SOCK_STREAM:
                    continue
                if copy.getsockname()[0] == copy.getpeername()[0]:
                    continue
                info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        except (OSError, ValueError):
            continue
        if len(info) >= 160:
            again += struct.unpack_from("I", info, 100)[0]
            sent += struct.unpack_from("I", info, 156)[0]
    return {"segments": sent, "retransmitted": again}


def hca_totals() -> Dict[str, int]:
    """Error counters of all RDMA ports, summed by name (/sys/class/infiniband/*/ports/*/{counters,hw_counters})."""
    totals: Dict[str, int] = {}
    for path in glob.glob("/sys/class/infiniband/*/ports/*/*counters/*"):
        name = os.path.basename(path)
        if name in _HCA_COUNTERS:
            try:
                with open(path) as file:
                    totals[name] = totals.get(name, 0) + int(file.read())
            except (OSError, ValueError):
                continue
    return totals


def myself(group: Group, gpu: bool) -> Dict[str, Any]:
    """What this rank's machine does without the network: CPU work, and with `gpu` copying and multiplying there."""
    torch = group.torch
    stopped = throttled()
    wall, cpu, done = time.perf_counter(), time.process_time(), 0
    block = torch.ones(1 << 18)
    while time.perf_counter() - wall < 0.4:
        block.mul_(1.0).add_(0.0)
        done += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    facts: Dict[str, Any] = {
        "event": "self",
        "cpu_work_s": wall / done,
        "cpu_share": cpu / wall,
        "throttled": None if stopped is None else (throttled() or 0) - stopped,
    }
    if group.cuda and gpu:
        source = torch.empty(1 << 30, dtype=torch.uint8, device=group.device)
        target = torch.empty_like(source)
        a = torch.randn(8192, 8192, dtype=torch.bfloat16, device=group.device)
        facts["memory_gbytes_s"] = 2 * source.numel() / 1e9 / _median_of(group, lambda: target.copy_(source))
        facts["bf16_tflops"] = 2 * 8192**3 / 1e12 / _median_of(group, lambda: a @ a)
    return facts


def _median_of(group: Group, work: Callable[[], Any], count: int = 9) -> float:
    taken = []
    for _ in range(count):
        begin, end = group.torch.cuda.Event(enable_timing=True), group.torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        group.torch.cuda.synchronize()
        taken.append(begin.elapsed_time(end) / 1000)
    return sorted(taken)[count // 2]


def throttled() -> Optional[int]:
    """How often the CPU quota of this cgroup stopped it; None where no quota is told of (cpu.stat, nr_throttled)."""
    try:
        with open("/proc/self/cgroup") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in groups:
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
            if controllers and "cpu" not in controllers.split(","):
                continue
            try:
                with open(root + path + "/cpu.stat") as file:
                    for line in file:
                        if line.startswith("nr_throttled"):
                            return int(line.split()[1])
            except (OSError, ValueError):
                continue
    return None


def run(job: Dict[str, Any], emit: Emit) -> None:
    """The whole life of one rank. Raises what torch raises."""
    before = hca_totals()
    group = Group(job, emit)
    if job.get("self"):
        emit(myself(group, job["self"] == "all"))
    for op in job["ops"]:
        for size in job["sizes"]:
            for in_place in places(op, group.cuda):
                emit({"event": "stage", "stage": "%s of %d bytes" % (op, size)})
                case = Case(group, op, int(size), in_place, int(job["seed"]))
                emit(measure(group, case, job))
                case.release()
    group.dist.all_reduce(group.small)
    group.wait()
    emit({"event": "done", "counters": {name: value - before.get(name, 0) for name, value in hca_totals().items()}})
    group.close()
