"""No torch: a barrier of plain sockets. Rank 1 never comes to it, FAULT says why; the others wait for it to speak."""

# mypy: ignore-errors
import os
import signal
import socket
import threading
import time

import group



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
    path = group.PLACE / "data.bin"
    os.mkfifo(path)
    group.here()
    with open(path, "rb") as data:
        data.read()


def loop():
    group.here()
    value = 1
    while value:
        value = value % 7 + 1


def sleep():
    group.here()
    time.sleep(3600)


def stopped():
    group.here()
    os.kill(os.getpid(), signal.SIGSTOP)


def name():
    group.here()
    socket.getaddrinfo("trainer-0.invalid", 80)


def slow():
    group.here()
    with open(group.PLACE / "shard.bin", "wb+", buffering=0) as shard:
        shard.write(bytes(1 << 20))
        while True:
            shard.seek(0)
            shard.read(1 << 18)
            time.sleep(0.1)


if group.RANK == 1:
    with group.server() as server:
        peers = [server.accept()[0] for _ in range(group.WORLD - 1)]
    globals()[os.environ["FAULT"]]()
    for peer in peers:
        peer.sendall(b"go")
else:
    with group.connect() as to_first:
        to_first.settimeout(None)
        group.here()
        to_first.recv(2)
