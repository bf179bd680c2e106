"""Ranks that are stopped, killed, out of memory, stuck or slow."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from ..acts import job_pid, signalled
from ..bench import Bench
from .base import LOADING, SLOW, fault


@fault("gloo", "rank 1 stopped (SIGSTOP) in its loop", "rank-stopped", node="b", rank=1, quick=True)
def stopped(made: Bench) -> None:
    made.env["a"]["STEPS"] = made.env["b"]["STEPS"] = "400"
    made.acts.append(signalled("b", "rank 1 has loaded", signal.SIGSTOP, 3))


@fault(
    "nodes",
    "rank 1 stopped (SIGSTOP) while it loads",
    "rank-stopped",
    node="b",
    rank=1,
    stages=("load-weights",),
    name="stopped-in-load",
    quick=True,
)
@fault(
    "tp2",
    "rank 1 stopped (SIGSTOP) while it loads",
    "rank-stopped",
    rank=1,
    stages=("load-weights",),
    name="stopped-in-load",
)
def stopped_in_load(made: Bench) -> None:
    where = "b" if made.shape == "nodes" else "a"
    made.acts.append(
        signalled(
            where,
            LOADING if made.shape == "nodes" else r"\(Worker_TP1 pid=(\d+)\)[^\n]*Starting to load model",
            signal.SIGSTOP,
        )
    )


@fault(
    "tp2",
    "rank 1 stopped (SIGSTOP) while it serves",
    "rank-stopped",
    rank=1,
    stages=("ready", "serving", "compile", "profile"),
    name="stopped-in-serving",
    quick=True,
)
def stopped_in_serving(made: Bench) -> None:
    made.acts.append(signalled("a", r"Application startup complete", signal.SIGSTOP))
    made.acts[-1] = _stop_last_worker


def _stop_last_worker(made: Bench) -> None:
    while "Supported tasks" not in made.text("a") and "Starting vLLM server" not in made.text("a"):
        if made.over:
            return
        time.sleep(0.01)
    found = re.findall(r"\(Worker_TP1 pid=(\d+)\)", made.text("a"))
    os.kill(int(found[-1]), signal.SIGSTOP)
    made.acted_at = time.time()


@fault(
    "tp2",
    "rank 1 stopped (SIGSTOP) while it profiles",
    "rank-stopped",
    rank=1,
    stages=("profile", "compile", "warm-up"),
    name="stopped-in-profile",
    quick=True,
)
def stopped_in_profile(made: Bench) -> None:
    compile_takes_long(made)
    made.acts.append(_stop_the_compiling)


def _stop_the_compiling(made: Bench) -> None:
    while "Warming up model" not in made.text("a"):
        if made.over:
            return
        time.sleep(0.1)
    time.sleep(3.0)
    found = re.findall(r"\(Worker_TP1 pid=(\d+)\)", made.text("a"))
    os.kill(int(found[-1]), signal.SIGSTOP)
    made.acted_at = time.time()


@fault("gloo", "rank 1 killed (SIGKILL)", "rank-died", node="b", rank=1, quick=True)
def killed(made: Bench) -> None:
    made.env["a"]["STEPS"] = made.env["b"]["STEPS"] = "400"
    made.acts.append(signalled("b", "rank 1 has loaded", signal.SIGKILL, 3))


@fault("nodes", "rank 1 killed (SIGKILL) while it loads", "rank-died", node="b", rank=1, name="killed-in-load")
@fault("tp2", "rank 1 killed (SIGKILL) while it loads", "rank-died", rank=1, name="killed-in-load", quick=True)
def killed_in_load(made: Bench) -> None:
    where = "b" if made.shape == "nodes" else "a"
    made.acts.append(
        signalled(
            where,
            LOADING if made.shape == "nodes" else r"\(Worker_TP1 pid=(\d+)\)[^\n]*Starting to load model",
            signal.SIGKILL,
        )
    )


@fault(
    "gloo", "rank 1 ended by the kernel: its cgroup has no more memory", "host-memory-oom", node="b", rank=1, quick=True
)
def out_of_memory(made: Bench) -> None:
    made.env["b"]["FAULT"] = "memory"
    made.acts.append(_confine)


def _confine(made: Bench) -> None:
    """Puts rank 1 into a cgroup that lets it take 200 MiB more than it has."""
    while "rank 1 has met the others" not in made.text("b"):
        if made.over:
            return
        time.sleep(0.01)
    pid = job_pid(made, "b")
    first = Path("/sys/fs/cgroup/memory")
    folder, limit = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"ncdiag-lab-{pid}", 200 << 20
    folder.mkdir()
    try:
        (folder / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")).write_text(str(limit))
        (folder / "cgroup.procs").write_text(str(pid))
        while Path(f"/proc/{pid}/exe").exists() and not made.over:
            time.sleep(0.05)
        made.acted_at = time.time()
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """A cgroup can be removed once nothing is in it."""
    for _ in range(100):
        try:
            return folder.rmdir()
        except OSError:
            time.sleep(0.1)


@fault(
    "gloo",
    "an exception in rank 1",
    "engine-exception",
    node="b",
    rank=1,
    quick=True,
)
def exception(made: Bench) -> None:
    made.env["b"]["FAULT"] = "raise"


@fault(
    "gloo",
    "rank 1 reads a file that never answers",
    "rank-stuck-outside-collective",
    "storage-slow",
    node="b",
    rank=1,
    quick=True,
)
def read_stalls(made: Bench) -> None:
    path = made.hosts.folder / "shard"
    os.mkfifo(path)
    made.env["b"] |= {"FAULT": "fifo", "FAULT_FILE": str(path)}


@fault("gloo", "rank 1 loads slowly, but it does (20 s)", SLOW, quick=True)
def slow_load(made: Bench) -> None:
    made.env["b"]["FAULT"] = "slow"


@fault("tp2", "a long compile, with empty caches", SLOW, quick=True)
def compile_takes_long(made: Bench) -> None:
    made.eager = False
    made.timeout_s = 400.0
    made.env["a"] |= {
        "VLLM_CPU_CI_ENV": None,  # with it vLLM leaves the compilation out
        "VLLM_CACHE_ROOT": str(made.hosts.folder / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(made.hosts.folder / "inductor"),
    }
