"""How an operation is best launched, and what `ncdiag bandwidth` chooses: launches.py --out FILE [--ops OP…] [--sizes BYTES…] [--ranks N].

One process a GPU. Of every operation and size: the time of one when they are launched one by one through torch (`eager_us`), in CUDA graphs
(`graph_us`), and what the CPU needs for one launch (`cpu_us`); of all-reduce besides, in place and by itself without torch (`raw_us`,
`raw_graph_us`). `chosen` and `mean_us` are what `ncdiag.bandwidth.node.timing.measure` makes of it. Times are microseconds, medians over batches, of
the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from ncdiag.bandwidth.node.group import GRAPHED, Group  # noqa: E402
from ncdiag.bandwidth.node.nccl import out_of_place  # noqa: E402
from ncdiag.bandwidth.node.operations import Case, places  # noqa: E402
from ncdiag.bandwidth.node.timing import measure  # noqa: E402

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SIZES = tuple(1 << power for power in range(3, 27))
BATCHES, BATCH_S, BURST = 7, 0.01, 20


def captured(operation: Callable[[], Any]) -> Callable[[], None]:
    """GRAPHED operations as one launch, whether that is faster or not."""
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(GRAPHED):
            operation()
    graph.replay()
    replay: Callable[[], None] = graph.replay
    return replay


def timed(group: Group, operation: Callable[[], Any], count: int) -> float:
    """Seconds of one of `count` operations."""
    taken = [group.total(operation, count) / count for _ in range(BATCHES)]
    return group.agree(statistics.median(taken))[0]


def cpu_s(group: Group, operation: Callable[[], Any]) -> float:
    """Seconds that the CPU takes for one launch, where the GPU need not be waited for."""
    group.wait()
    began = time.perf_counter()
    for _ in range(BURST):
        operation()
    taken = time.perf_counter() - began
    group.wait()
    return group.agree(taken / BURST)[0]


def compare(group: Group, op: str, size: int, in_place: bool) -> dict[str, Any]:
    case = Case(group, op, size, in_place, 1)
    job = {"warmup": 5, "precision": 0.01, "budget_s": 0.3, "check": False}
    row = measure(group, case, job)
    mean_s = group.agree(row["mean_s"])[0]  # of all ranks, so that all launch as many
    case.fill()
    count = max(min(int(BATCH_S / mean_s), 200), BURST)
    graph = captured(case.operation)
    found = {
        "eager_us": timed(group, case.operation, count),
        "cpu_us": cpu_s(group, case.operation),
        "graph_us": timed(group, graph, count // GRAPHED) / GRAPHED,
        "mean_us": mean_s,
    }
    if op == "all_reduce" and in_place:
        reduce = out_of_place(group)

        def raw() -> None:
            reduce(case.input, case.input)

        raw()
        graph = captured(raw)
        found["raw_us"] = timed(group, raw, count)
        found["raw_graph_us"] = timed(group, graph, count // GRAPHED) / GRAPHED
    said = {name: round(seconds * 1e6, 2) for name, seconds in found.items()}
    best = min(said["eager_us"], said["graph_us"])
    return {"op": op, "size": size, "in_place": in_place, "chosen": "graph" if row["graph"] else "eager",
            "over_best": round(said["mean_us"] / best, 3), **said}  # fmt: skip


def rank(options: argparse.Namespace) -> None:
    job = {"rank": options.rank, "world": options.ranks, "device": options.rank, "backend": "nccl", "timeout_s": 20}
    job.update(store={"host": "127.0.0.1", "port": options.port}, dtype="float32")
    group = Group(job, lambda message: None)
    rows = []
    for op in options.ops:
        for size in options.sizes:
            for in_place in places(op, True):
                rows.append(compare(group, op, size, in_place))
    if options.rank == 0:
        options.out.write_text(json.dumps(rows, indent=1))
    group.close()


def table(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        name = f"{row['op']}{' in place' if row['in_place'] else ''}"
        rest = " ".join(f"{key[:-3]} {value:.1f}" for key, value in row.items() if key.endswith("_us"))
        worse = "  <- not the best" if row["over_best"] > 1.1 else ""
        print(f"{name} {row['size']}: {row['chosen']} {rest}{worse}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ops", nargs="*", default=OPS)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29561)
    parser.add_argument("--rank", type=int, help="runs this one of them")
    options = parser.parse_args()
    if options.rank is not None:
        rank(options)
        return 0
    started = [
        subprocess.Popen([sys.executable, *sys.argv, "--rank", str(number)], env=os.environ)
        for number in range(options.ranks)
    ]
    try:
        while any(process.poll() is None for process in started) and not any(process.poll() for process in started):
            time.sleep(0.2)
    finally:
        for process in started:
            process.kill()
    failed = any(process.wait() for process in started)
    if not failed:
        table(json.loads(options.out.read_text()))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
