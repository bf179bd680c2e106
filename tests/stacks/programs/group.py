"""What the little programs share: the rank, the place where a rank says that it has come to its fault, the gloo group."""

# mypy: ignore-errors
import ctypes
import datetime
import os
import pathlib
import signal
import socket
import time

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives a test that is ended
PLACE = pathlib.Path(os.environ["PROGRAM_DIR"])
"""A folder of this run alone."""


def here():
    """Say that this rank is about to do what the case is about."""
    (PLACE / f"here-{RANK}").touch()


def server():
    """Where the others reach the rank that they wait for, in programs without torch."""
    return socket.create_server(("127.0.0.1", int(os.environ["MASTER_PORT"])))


def connect():
    """The connection to that rank."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", int(os.environ["MASTER_PORT"])), timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.05)


def join():
    """torch.distributed over gloo, with a time limit longer than any test."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    return dist
