"""Ranks out of step: FAULT says how."""

# mypy: ignore-errors
import os

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


def healthy():
    """A training loop."""
    group.here()
    while True:
        y = torch.randn(256, 256) @ torch.randn(256, 256)
        dist.all_reduce(y)


if FAULT == "skipped":
    group.here()
globals()[FAULT]()
