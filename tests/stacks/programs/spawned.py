"""Ranks that torch.multiprocessing makes, which have no rank in their environment. FAULT says what the second one does; prints `ready`."""

# mypy: ignore-errors
import datetime
import os
import pathlib
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

WORLD = 3


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def slow():
    rows = []
    while True:
        rows.append(bytearray(20000))
        time.sleep(0.01)


def healthy():
    pass


def run(number, place, fault):
    store = f"file://{place}/store"
    dist.init_process_group("gloo", store, datetime.timedelta(seconds=600), WORLD, number)
    dist.all_reduce(torch.ones(8))
    pathlib.Path(place, f"here-{number}").touch()
    if number == 1:
        globals()[fault]()
    while True:
        dist.all_reduce(torch.randn(256, 256) @ torch.randn(256, 256))


def tell(place):
    while len(list(place.glob("here-*"))) < WORLD:
        time.sleep(0.1)
    time.sleep(0.5)
    print("ready", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    folder = pathlib.Path(os.environ["PROGRAM_DIR"])
    threading.Thread(target=tell, args=(folder,), daemon=True).start()
    torch.multiprocessing.start_processes(
        run, (str(folder), os.environ["FAULT"]), WORLD, start_method=os.environ.get("START", "spawn")
    )
