"""What a hang dump costs: its time, its CPU against py-spy's own, what it takes from the target, and 200 dumps in a row.

    python benchmarks/hang_dump.py [--python PYTHON_WITH_TORCH] [--ranks 8] [--dumps 200] [--in-a-row-ranks 4] [--json]

The target is a gloo all-reduce loop on the CPU. Prints one line a measurement; ends with 1 when a limit does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from ncdiag.hang.dump import Request, dump
from ncdiag.processes.stacks import py_spy

JOB = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo"); rank = dist.get_rank(); steps = 0
part = torch.full((1024,), float(rank))
while True:
    whole = part.clone(); dist.all_reduce(whole)
    assert whole[0].item() == sum(range(dist.get_world_size())), "a wrong sum"
    steps += 1
    if rank == 0:
        with open(sys.argv[1], "w") as file: file.write(str(steps))
    time.sleep(0.001)
"""
LIMIT_S = 6.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Job:
    """The ranks, started by one parent each, working."""

    def __init__(self, python: str, ranks: int, folder: Path) -> None:
        program = folder / "job.py"
        program.write_text(JOB)
        self.counter = folder / "steps"
        self.counter.write_text("0")
        environment = {
            **os.environ,
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
        }
        self.processes = [
            subprocess.Popen(
                [python, str(program), str(self.counter)],
                env={**environment, "RANK": str(rank)},
                stderr=subprocess.DEVNULL,
            )
            for rank in range(ranks)
        ]
        self.wait(50)

    def steps(self) -> int:
        return int(self.counter.read_text() or 0)

    def wait(self, more: int, limit_s: float = 180.0) -> None:
        """Until `more` steps are done."""
        goal, deadline = self.steps() + more, time.monotonic() + limit_s
        while self.steps() < goal:
            if time.monotonic() > deadline or not self.alive():
                raise SystemExit("the job does not work")
            time.sleep(0.2)

    def rate(self, work: object = None) -> float:
        """Steps a second over 4 s, or while `work()` runs."""
        before, started = self.steps(), time.monotonic()
        if callable(work):
            work()
        else:
            time.sleep(4)
        return (self.steps() - before) / (time.monotonic() - started)

    def alive(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(*arguments: str) -> tuple[float, float]:
    """(wall, CPU) seconds of one program."""
    before, started = cpu_of_children(), time.monotonic()
    subprocess.run(arguments, stdout=subprocess.DEVNULL, check=False)
    return time.monotonic() - started, cpu_of_children() - before


def measure_one(job: Job) -> dict[str, float]:
    pid = str(job.processes[0].pid)
    found: dict[str, float] = {"steps_per_s_alone": job.rate()}
    cost: list[tuple[float, float]] = []
    found["steps_per_s_during_dump"] = job.rate(
        lambda: cost.append(command(sys.executable, "-m", "ncdiag", "-q", "hang-dump", pid))
    )
    found["dump_wall_s"], found["dump_cpu_s"] = cost[0]
    native = [
        command(py_spy() or "py-spy", "dump", "--json", "--native", "--pid", str(process.pid))
        for process in job.processes
    ]
    found["py_spy_native_wall_s"], found["py_spy_native_cpu_s"] = (
        sum(wall for wall, _ in native),
        sum(cpu for _, cpu in native),
    )
    return found


def measure_row(job: Job, dumps: int) -> dict[str, float]:
    """Dumps in a row inside this process, so that what is left behind shows here."""
    request, here = Request([job.processes[0].pid], window_s=0.2, native="none", no_ras=True), psutil.Process()
    dump(request)
    before, started, steps = here.num_fds(), time.monotonic(), job.steps()
    read = 0
    for _ in range(dumps):
        states = dump(request).states
        read += sum(bool(state.threads) for state in states)
    took = time.monotonic() - started
    job.wait(20)
    return {
        "dumps": dumps,
        "wall_s": took,
        "stacks_read": read,
        "stacks_wanted": dumps * len(job.processes),
        "steps_per_s": (job.steps() - steps) / took,
        "descriptors_left": here.num_fds() - before,
        "zombies": sum(child.status() == psutil.STATUS_ZOMBIE for child in here.children()),
        "ranks_alive": sum(process.poll() is None for process in job.processes),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--python", default=sys.executable, help="an interpreter that has torch")
    options.add_argument("--ranks", type=int, default=8)
    options.add_argument("--in-a-row-ranks", type=int, default=4)
    options.add_argument("--dumps", type=int, default=200)
    options.add_argument("--json", action="store_true")
    wanted = options.parse_args()
    results = {}
    for name, ranks, measure in (
        ("one", wanted.ranks, measure_one),
        ("row", wanted.in_a_row_ranks, lambda job: measure_row(job, wanted.dumps)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(wanted.python, ranks, Path(folder))
            try:
                results[name] = {key: round(value, 2) for key, value in measure(job).items()}
            finally:
                job.end()
    one, row = results["one"], results["row"]
    limits = {
        f"verdict in under {LIMIT_S:g} s": one["dump_wall_s"] < LIMIT_S,
        "less CPU than py-spy --native of each": one["dump_cpu_s"] < one["py_spy_native_cpu_s"],
        "no descriptor, no zombie left": row["descriptors_left"] <= 0 and row["zombies"] == 0,
        "every rank alive and right": row["ranks_alive"] == wanted.in_a_row_ranks,
    }
    if wanted.json:
        print(json.dumps({**results, "limits": limits}, indent=1))
    else:
        for name, found in results.items():
            print(f"{name}: " + ", ".join(f"{key} {value:g}" for key, value in found.items()))
        for text, holds in limits.items():
            print(f"{'holds' if holds else 'BROKEN'}: {text}")
    return 0 if all(limits.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
