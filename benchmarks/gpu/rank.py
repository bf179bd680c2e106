"""One rank of a little job for captures: all-reduces for ever, with one fault at one step of one rank.

Environment besides torch's own (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT): JOB_PLACE (folder for what it notes down), JOB_GPU (LOCAL_RANK), JOB_BACKEND
(nccl), JOB_FAULT and JOB_FAULT_RANK, JOB_FAULT_STEP (20), JOB_TIMEOUT_S, JOB_ELEMENTS (1 Mi floats), JOB_GATE (a file to wait for after the
store), JOB_EAGER (communicator made at once), JOB_PAUSE_S (0, between steps), JOB_STEPS
(endless).
"""

from __future__ import annotations

import datetime
import itertools
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PLACE = Path(os.environ["JOB_PLACE"])
BACKEND = os.environ.get("JOB_BACKEND", "nccl")
FAULT = os.environ.get("JOB_FAULT", "")
FAULT_RANK = int(os.environ.get("JOB_FAULT_RANK", "-1"))
FAULT_STEP = int(os.environ.get("JOB_FAULT_STEP", "20"))
STEPS = int(os.environ.get("JOB_STEPS", "0"))
ELEMENTS = int(os.environ.get("JOB_ELEMENTS", str(1 << 20)))
GPU = int(os.environ.get("JOB_GPU", os.environ.get("LOCAL_RANK", "0")))
DEVICE = torch.device("cuda", GPU) if BACKEND == "nccl" else torch.device("cpu")


def note(text: str) -> None:
    """What the driver waits for."""
    with (PLACE / f"rank{RANK}.marks").open("a") as file:
        file.write(f"{time.time():.3f} {text}\n")


def load_batch() -> None:
    """A data loader that never comes back."""
    time.sleep(3600)


def take_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def tokenize() -> None:
    """An endless calculation in Python."""
    text = 0
    while True:
        text = (text * 31 + 7) % 1_000_003


def busy_gpu() -> None:
    """A kernel of its own that does not end; what comes after it on the stream waits."""
    torch.cuda._sleep(1 << 45)


def fill_memory() -> None:
    """More than any GPU has."""
    torch.empty(1 << 43, dtype=torch.uint8, device=DEVICE)


def bad_index() -> None:
    """A row that the table does not have; the kernel finds out."""
    table = torch.zeros(8, device=DEVICE)
    float(table[torch.tensor([99], device=DEVICE)].sum())


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise RuntimeError("sample 4711 has 3 channels, 4 were expected")


def leave() -> None:
    sys.exit(0)


ALONE = {
    "sleep": load_batch,
    "lock": take_lock,
    "loop": tokenize,
    "busy_gpu": busy_gpu,
    "memory": fill_memory,
    "index": bad_index,
    "die": die,
    "raise": fail,
    "leave": leave,
}
"""Faults that one rank has by itself."""


def differ(tensor: torch.Tensor) -> None:
    """Faults in which one rank calls something else than the others."""
    mine = RANK == FAULT_RANK
    if FAULT == "size":
        dist.all_reduce(torch.ones(ELEMENTS * (4 if mine else 1), device=DEVICE))
    elif FAULT == "operation":
        dist.broadcast(tensor, 0) if mine else dist.all_reduce(tensor)
    elif FAULT == "skip" and not mine:
        dist.all_reduce(tensor)
    elif FAULT == "receive":
        dist.recv(tensor, 0) if mine else dist.all_reduce(tensor)
    elif FAULT == "gather":
        dist.all_gather([torch.empty_like(tensor) for _ in range(WORLD)], tensor) if mine else dist.all_reduce(tensor)


def save_checkpoint() -> None:
    """What comes after the last step; it takes long."""
    time.sleep(3600)


def two_groups() -> None:
    """Half of the ranks use two groups in the other order."""
    first, second = dist.new_group(), dist.new_group()
    tensor = torch.ones(ELEMENTS, device=DEVICE)
    for group in (first, second):  # both communicators are made before
        dist.all_reduce(tensor, group=group)
    float(tensor[0])
    note("fault")
    for group in (first, second) if RANK < WORLD // 2 else (second, first):
        dist.all_reduce(tensor, group=group)
        float(tensor[0])


def work(step: int, tensor: torch.Tensor) -> None:
    tensor.fill_(float(RANK + 1))
    if FAULT and step == FAULT_STEP:
        if FAULT in ALONE and RANK == FAULT_RANK:
            note("fault")
            ALONE[FAULT]()
        elif FAULT not in ALONE:
            note("fault")
            differ(tensor)
    dist.all_reduce(tensor)
    got, wanted = float(tensor[0]), WORLD * (WORLD + 1) / 2
    if not FAULT and got != wanted:
        raise RuntimeError(f"a wrong sum at step {step}: {got} instead of {wanted}")


def main() -> None:
    note("start")
    if FAULT == "late" and RANK == FAULT_RANK:
        load_batch()
    if BACKEND == "nccl":
        torch.cuda.set_device(GPU)
    limit = datetime.timedelta(seconds=float(os.environ.get("JOB_TIMEOUT_S", "600")))
    dist.init_process_group(BACKEND, timeout=limit, **({"device_id": DEVICE} if os.environ.get("JOB_EAGER") else {}))
    note("met")
    while os.environ.get("JOB_GATE") and not Path(os.environ["JOB_GATE"]).exists():
        time.sleep(0.1)
    if FAULT == "late_init" and RANK == FAULT_RANK:
        note("fault")
        load_batch()
    if FAULT == "two_groups":
        two_groups()
    tensor = torch.ones(ELEMENTS, device=DEVICE)
    with (PLACE / f"rank{RANK}.steps").open("a", buffering=1) as steps:
        for step in range(1, STEPS + 1) if STEPS else itertools.count(1):
            time.sleep(float(os.environ.get("JOB_PAUSE_S", "0")))
            started = time.time()
            work(step, tensor)
            steps.write(f"{started:.4f} {time.time() - started:.4f}\n")
            if step in (1, 10):
                note(f"step {step}")
                print(f"rank {RANK} step {step} done", flush=True)
    save_checkpoint()


if __name__ == "__main__":
    main()
