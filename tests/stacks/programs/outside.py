"""Rank 1 stays away from a collective of all: FAULT says in what. The others call all_reduce and wait."""

# mypy: ignore-errors
import os
import signal
import subprocess
import sys
import threading
import time

import group
import torch

dist = group.join()


def lock():
    held = threading.Lock()
    held.acquire()
    group.here()
    held.acquire()


def pipe():
    reader, writer = os.pipe()
    group.here()
    os.read(reader, 1)
    os.close(writer)


def fifo():
    path = group.PLACE / "weights.bin"
    os.mkfifo(path)
    group.here()
    with open(path, "rb") as weights:
        weights.read()


def loop():
    group.here()
    value = 1
    while value:
        value = value % 7 + 1


def sleep():
    group.here()
    time.sleep(3600)


def child():
    group.here()
    subprocess.run([sys.executable, "-c", "import time; time.sleep(3600)"], check=False)


def stopped():
    group.here()
    os.kill(os.getpid(), signal.SIGSTOP)


def slow_read():
    group.here()
    with open(group.PLACE / "shard.bin", "wb+", buffering=0) as shard:
        shard.write(bytes(1 << 20))
        while True:
            shard.seek(0)
            shard.read(1 << 18)
            time.sleep(0.1)


def slow_compile():
    group.here()
    subprocess.run([sys.executable, "-c", "while True: sum(range(10000))"], check=False)


def slow_growth():
    group.here()
    rows = []
    while len(rows) < 30000:
        rows.append(bytearray(20000))
        time.sleep(0.01)


if group.RANK == 1:
    globals()[os.environ["FAULT"]]()
else:
    group.here()
dist.all_reduce(torch.ones(8))
