"""No torch: a barrier of plain sockets. Rank 1 never comes to it, FAULT says why; the others wait for it to speak."""

# mypy: ignore-errors
import asyncio
import os
import signal
import socket
import subprocess
import sys
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


def listens():
    """A debugger's door, say: nobody of the group ever comes there."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        group.here()
        door.accept()


def unread():
    """Whoever started it does not read what it prints."""
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    group.here()
    while True:
        print("x" * 1000)


def event_loop():
    async def work():
        await asyncio.get_running_loop().create_future()

    group.here()
    asyncio.run(work())


def asks():
    """An answer of somebody outside the group that never comes."""
    code = "import socket, sys, time\nkept = socket.socket(fileno=int(sys.argv[1])).accept()\ntime.sleep(3600)"
    with socket.create_server(("127.0.0.1", 0)) as door:
        other = subprocess.Popen([sys.executable, "-c", code, str(door.fileno())], pass_fds=[door.fileno()], env={})
        with socket.create_connection(door.getsockname()) as asked:
            group.here()
            asked.recv(1)
        other.wait()


def child_died():
    """Who was to write into the pipe is no more, and nobody has asked how it ended."""
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    time.sleep(0.5)
    group.here()
    os.read(reader, 1)
    os.close(writer)
    child.wait()


def stopped():
    group.here()
    os.kill(os.getpid(), signal.SIGSTOP)


def name():
    group.here()
    socket.getaddrinfo("trainer-0.invalid", 80)


def name_in_a_loop():
    async def work():
        await asyncio.get_running_loop().getaddrinfo("trainer-0.invalid", 80)

    group.here()
    asyncio.run(work())


def slow():
    group.here()
    with open(group.PLACE / "shard.bin", "wb+", buffering=0) as shard:
        shard.write(bytes(1 << 20))
        while True:
            shard.seek(0)
            shard.read(1 << 18)
            time.sleep(0.1)


def shell():
    """A shell that runs one short program after the other, as a build or a download script does."""
    group.here()
    line = 'while :; do head -c 200000 /dev/zero > "$0"; sleep 0.1; done; true'
    subprocess.run(["sh", "-c", line, str(group.PLACE / "part.bin")], check=False)


DRIPS = """
import socket, sys, time
connection, _ = socket.socket(fileno=int(sys.argv[1])).accept()
while True:
    connection.sendall(bytes(3000)); time.sleep(0.2)
"""


def fetcher():
    """A program of its own that gets a little now and then, and writes nothing yet."""
    code = "import socket, sys\ns = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\nwhile s.recv(4096): pass"
    with socket.create_server(("127.0.0.1", 0)) as source:
        drips = subprocess.Popen([sys.executable, "-c", DRIPS, str(source.fileno())], pass_fds=[source.fileno()])
        group.here()
        subprocess.run([sys.executable, "-c", code, str(source.getsockname()[1])], check=False)
        drips.wait()


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
