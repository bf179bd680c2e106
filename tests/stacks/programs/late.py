"""No torch: ranks that meet at a round of plain sockets, again and again. FAULT says what rank 1 does before each; nobody writes a log."""

# mypy: ignore-errors
import os
import subprocess
import sys
import threading
import time

import group

SOURCE = []


def sleeps():
    time.sleep(float(os.environ["LATE_S"]))


def sleeps_in_pieces():
    end = time.monotonic() + float(os.environ["LATE_S"])
    while time.monotonic() < end:
        time.sleep(0.1)


def lines():
    if not SOURCE:
        code = "import time\nwhile True:\n print('x', flush=True)\n time.sleep(float(%r))" % os.environ["LATE_S"]
        SOURCE.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE))
    SOURCE[0].stdout.readline()


def lock():
    held = threading.Lock()
    held.acquire()
    held.acquire()


def lock_of_a_thread():
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=release_late, args=(held,), daemon=True).start()
    held.acquire()


def release_late(held):
    time.sleep(float(os.environ["LATE_S"]))
    held.release()


def pipe():
    reader, writer = os.pipe()
    os.read(reader, 1)
    os.close(writer)


def written():
    _, writer = os.pipe()
    os.write(writer, bytes(1 << 20))


def written_to_a_child():
    child = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    child.stdin.write(bytes(1 << 20))


def typed():
    _, end = os.openpty()
    os.dup2(end, 0)
    sys.stdin.readline()


if group.RANK == 1:
    with group.server() as server:
        peers = [server.accept()[0] for _ in range(group.WORLD - 1)]
    group.here()
    while True:
        globals()[os.environ["FAULT"]]()
        for peer in peers:
            peer.sendall(b"go")
else:
    with group.connect() as to_first:
        to_first.settimeout(None)
        group.here()
        while to_first.recv(2):
            pass
