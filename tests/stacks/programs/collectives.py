"""Ranks out of step: FAULT says how."""

# mypy: ignore-errors
import asyncio
import http.server
import os
import threading
import time

import group
import torch

dist = group.join()
FAULT = os.environ["FAULT"]
x = torch.ones(1024)
dist.all_reduce(x)


def skipped():
    """Rank 2 leaves one all_reduce out and goes on to what comes next."""
    if group.RANK != 2:
        dist.all_reduce(x)
    dist.broadcast(x, src=2 if group.RANK == 2 else 0)
    dist.barrier()


def two_groups():
    """Two groups of all ranks: the lower half enters the first one, the upper half the second one."""
    first, second = dist.new_group(), dist.new_group()
    group.here()
    if group.RANK * 2 < group.WORLD:
        dist.all_reduce(x, group=first)
        dist.all_reduce(x, group=second)
    else:
        dist.all_reduce(x, group=second)
        dist.all_reduce(x, group=first)


def receive_from_nobody():
    """Rank 0 waits for a message that rank 1 never sends: rank 1 waits for one too."""
    group.here()
    dist.recv(x, src=1 - group.RANK)


def ring():
    """Everybody waits for the left neighbour before it sends to the right one."""
    group.here()
    dist.recv(x, src=(group.RANK - 1) % group.WORLD)


def messages():
    """Two send and two receive at one line, and no two of them mean each other."""
    group.here()
    kind, peer = ((dist.isend, 1), (dist.irecv, 2), (dist.irecv, 0), (dist.isend, 0))[group.RANK]
    for work in dist.batch_isend_irecv([dist.P2POp(kind, torch.ones(1 << 20), peer)]):
        work.wait()


class Sleeper:
    def __reduce__(self):
        time.sleep(3600)


def packs():
    """Rank 1 is in a collective of objects, and has to pickle its own first."""
    group.here()
    dist.all_gather_object([None] * group.WORLD, Sleeper() if group.RANK == 1 else 1)


def slow_packing():
    """The same with a large one."""
    much = [{"number": number, "text": str(number)} for number in range(1 << 20)] if group.RANK == 1 else 1
    dist.barrier()
    group.here()
    while True:
        dist.all_gather_object([None] * group.WORLD, much)


def naps():
    """Steps of which each is a long sleep, of all ranks at once."""
    group.here()
    while True:
        time.sleep(20)
        dist.all_reduce(x)


def file_barrier():
    """Rank 0 is to make a file that the others look for, and waits for a lock."""
    group.here()
    if group.RANK == 0:
        held = threading.Lock()
        held.acquire()
        held.acquire()
    while not (group.PLACE / "done").exists():
        time.sleep(2)


def key():
    """Rank 1 never sets the key that the others wait for."""
    group.here()
    if group.RANK == 1:
        time.sleep(3600)
    dist.distributed_c10d._get_default_store().get("made-by-1")


def in_threads():
    """The main threads only wait for a thread, and that of rank 1 never comes."""

    def work():
        if group.RANK == 1:
            time.sleep(3600)
        dist.all_reduce(x)

    thread = threading.Thread(target=work)
    thread.start()
    group.here()
    thread.join()


def in_asyncio():
    """Rank 1 waits for an event that nobody sets; the others are in a collective in an executor's thread."""

    async def work():
        if group.RANK == 1:
            await asyncio.Event().wait()
        await asyncio.get_running_loop().run_in_executor(None, dist.all_reduce, x)

    group.here()
    asyncio.run(work())


def driver():
    """Rank 0 serves, and hands what it is asked on to the others."""
    group.here()
    if group.RANK == 0:
        http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler).serve_forever()
    while True:
        dist.broadcast(x, src=0)


def healthy():
    """A training loop."""
    group.here()
    while True:
        y = torch.randn(256, 256) @ torch.randn(256, 256)
        dist.all_reduce(y)


if FAULT == "skipped":
    group.here()
globals()[FAULT]()
